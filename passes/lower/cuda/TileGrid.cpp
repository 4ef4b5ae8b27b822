//===- TileGrid.cpp - device kernels of the tiles space -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/TileGrid.h"

#include "passes/lower/Tile.h"
#include "passes/lower/cuda/BlockRun.h"
#include "passes/lower/cuda/GridKernel.h"
#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// Emits the kernels of one phase. A block has a strip of columns of each tile
/// of a chunk.
class TileGridEmitter {
public:
  TileGridEmitter(OpBuilder &builder, PhaseOp phase)
      : w(builder, phase.getLoc()), phase(phase),
        program(cast<ProgramOp>(phase->getParentOp())),
        width(getStripColumns(phase)) {}

  void emit();

private:
  void emitGrid(StringRef name, func::FuncOp run, bool isStrided);
  void emitChunk(const TileRow &row, Value start, Value length, Value strip,
                 func::FuncOp run, bool isStrided);
  void emitTile(const TileRow &row, const Tile &tile, func::FuncOp run,
                bool isStrided);

  Words w;
  PhaseOp phase;
  ProgramOp program;
  int64_t width;
};
} // namespace

void TileGridEmitter::emitTile(const TileRow &row, const Tile &tile,
                               func::FuncOp run, bool isStrided) {
  TileRunArguments in;
  in.scalars = row.scalars;
  in.tensorSlots = row.tensorSlots;
  for (auto operand : phase.getOperands().getAsRange<OperandAttr>()) {
    bool isMoved = isStrided && getAccess(phase, operand) == Access::Tile;
    in.operands.push_back(
        isMoved ? row.getAddress(operand)
                : getOperandAddress(w, row, tile, phase, operand));
  }
  for (auto accumulator : phase.getAccumulators().getAsRange<AccumulatorAttr>())
    in.accumulators.push_back(getPartialAddress(w, row, tile, accumulator));
  in.pitch = row.M;
  in.leaves = row.leaves;
  in.rows = w.toIndex(tile.rows);
  in.cols = w.toIndex(tile.columns);
  SmallVector<Value> arguments;
  if (isStrided) {
    Value first = w.add(w.mul(tile.item, row.N), tile.firstRow);
    arguments = {row.getRank(), row.getExtents(),
                 w.add(w.mul(first, row.M), tile.firstColumn)};
  }
  arguments.append(in.getValues());
  func::CallOp::create(w.b, w.loc, run, arguments);
}

/// Strip number `strip` (a word) of each tile of a chunk that has it.
void TileGridEmitter::emitChunk(const TileRow &row, Value start, Value length,
                                Value strip, func::FuncOp run, bool isStrided) {
  Value offset = w.mul(strip, w.constantWord(width));
  w.loop(w.toIndex(start), w.toIndex(w.add(start, length)), 1,
         [&](Value number) {
           Tile tile = locateTile(w, row, w.toWord(number));
           tile.firstColumn = w.add(tile.firstColumn, offset);
           tile.columns =
               w.max(w.min(w.sub(tile.columns, offset), w.constantWord(width)),
                     w.constantWord(0));
           emitTile(row, tile, run, isStrided);
         });
}

void TileGridEmitter::emitGrid(StringRef name, func::FuncOp run,
                               bool isStrided) {
  int64_t strips = STEPC_TILE_COLUMNS / width;
  emitChunkKernel(
      w, name,
      [&](const CallWords &call, Value number) {
        Value entry = w.div(number, w.constant(strips));
        Value strip = w.toWord(w.rem(number, w.constant(strips)));
        Value chunks = w.words(call.chunks);
        Value first = w.mul(entry, w.constant(3));
        TileRow row(w, program, call, w.load(chunks, first));
        Value start = w.load(chunks, w.add(first, w.constant(1)));
        Value length = w.load(chunks, w.add(first, w.constant(2)));
        if (auto unless = phase.getUnless()) {
          Type f64 = w.b.getF64Type();
          Value zero =
              arith::ConstantOp::create(w.b, w.loc, w.b.getF64FloatAttr(0.0));
          Value slot = w.load(w.view(row.tensorSlots, f64), *unless);
          Value leftOut = arith::CmpFOp::create(
              w.b, w.loc, arith::CmpFPredicate::UNE, slot, zero);
          length = w.select(leftOut, w.constantWord(0), length);
        }
        emitChunk(row, start, length, strip, run, isStrided);
      },
      strips);
}

void TileGridEmitter::emit() {
  std::string name = phase.getSymName().str();
  func::FuncOp run = emitBlockRun(w.b, phase, name + "_run");
  func::FuncOp stridedRun =
      emitStridedBlockRun(w.b, phase, name + "_strided_run");
  emitGrid(name, run, /*isStrided=*/false);
  emitGrid(name + "_strided", stridedRun, /*isStrided=*/true);
}

void mlir::step::emitTileGrids(OpBuilder &builder, PhaseOp phase) {
  TileGridEmitter(builder, phase).emit();
}
