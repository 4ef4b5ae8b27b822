//===- TileGrid.cpp - device kernels of the tiles space -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/TileGrid.h"

#include "passes/lower/Combiners.h"
#include "passes/lower/Tile.h"
#include "passes/lower/cuda/BlockRun.h"
#include "passes/lower/cuda/BlockTree.h"
#include "passes/lower/cuda/GridKernel.h"
#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// Emits the kernels of one phase, or the one of flat ranges. A block has a
/// strip of columns of each tile of a chunk; or every so many-th tile of one
/// that has a single row, whose strips are then handled as rows, which keeps
/// more threads busy where they add along them.
class TileGridEmitter {
public:
  TileGridEmitter(OpBuilder &builder, TraverseOp traverse,
                  const ProgramStorage &storage)
      : w(builder, traverse.getLoc()), traverse(traverse), storage(storage),
        operands(getOperands(traverse)),
        accumulators(getAccumulators(traverse)),
        width(getStripColumns(traverse)) {}

  void emit();

private:
  void emitGrid(StringRef name, func::FuncOp run, bool isStrided);
  bool canFoldRows() const;
  bool hasSums(Leaves leaves) const;
  void clearSums(const TileRow &row, const Tile &tile, Leaves leaves,
                 Value count);
  void emitRangeTile(const TileRow &row, const Tile &tile, func::FuncOp run);
  void emitRangeRow(const TileRow &row, const Tile &line, func::FuncOp run);
  void emitChunk(const TileRow &row, Value start, Value length, Value strip,
                 func::FuncOp run, bool isStrided);
  void emitTile(const TileRow &row, const Tile &tile, Value isFolded,
                func::FuncOp run, bool isStrided);

  Words w;
  TraverseOp traverse;
  const ProgramStorage &storage;
  SmallVector<Operand> operands;
  SmallVector<Accumulator> accumulators;
  int64_t width;
};
} // namespace

/// Whether a phase does the same in parts of one row as in rows: nothing
/// depends on which row it is.
bool TileGridEmitter::canFoldRows() const {
  return llvm::none_of(operands,
                       [&](const Operand &operand) {
                         Access access = getAccess(traverse, operand);
                         return access == Access::Row ||
                                access == Access::Column;
                       }) &&
         !hasSums(Leaves::Columns);
}

/// `isFolded`: whether the tile is one row of whole strips, to be run as rows.
void TileGridEmitter::emitTile(const TileRow &row, const Tile &tile,
                               Value isFolded, func::FuncOp run,
                               bool isStrided) {
  TileRunArguments in;
  in.scalars = row.scalars;
  in.tensorSlots = row.tensorSlots;
  for (const Operand &operand : operands) {
    bool isMoved = isStrided && isOfElements(traverse, operand);
    in.operands.push_back(
        isMoved ? row.getAddress(operand.buffer)
                : getOperandAddress(w, row, tile, traverse, operand));
  }
  for (const Accumulator &accumulator : accumulators)
    in.accumulators.push_back(getPartialAddress(w, row, tile, accumulator));
  auto choose = [&](int64_t folded, Value plain) {
    return isFolded ? w.select(isFolded, w.constantWord(folded), plain) : plain;
  };
  in.pitch = choose(width, row.M);
  in.leaves = choose(width / STEPC_LEAF, row.leaves);
  in.rows = w.toIndex(choose(STEPC_TILE_COLUMNS / width, tile.rows));
  in.cols = w.toIndex(choose(width, tile.columns));
  SmallVector<Value> arguments;
  if (isStrided) {
    Value first = w.add(w.mul(tile.item, row.N), tile.firstRow);
    arguments = {row.getRank(), row.getExtentWords(),
                 w.add(w.mul(first, row.M), tile.firstColumn)};
  }
  arguments.append(in.getValues());
  func::CallOp::create(w.b, w.loc, run, arguments);
}

bool TileGridEmitter::hasSums(Leaves leaves) const {
  return llvm::any_of(accumulators, [&](const Accumulator &accumulator) {
    return accumulator.is(leaves);
  });
}

/// The first `count` (a word) partial results of the tile along rows or columns
/// start from the neutral value.
void TileGridEmitter::clearSums(const TileRow &row, const Tile &tile,
                                Leaves leaves, Value count) {
  if (!hasSums(leaves))
    return;
  Type f64 = w.b.getF64Type();
  for (const Accumulator &own : accumulators) {
    if (!own.is(leaves))
      continue;
    Value sums = w.view(getPartialAddress(w, row, tile, own), f64);
    Value neutral = emitNeutral(w, own.combiner, 0);
    emitBlockLoop(w, count,
                  [&](Value i) { w.store(neutral, sums, w.toIndex(i)); });
  }
  emitBarrier(w);
}

/// One row of a strip of a tile, of which the range has some columns or none:
/// leaf by leaf, as not all of them are touched.
void TileGridEmitter::emitRangeRow(const TileRow &row, const Tile &line,
                                   func::FuncOp run) {
  clearSums(row, line, Leaves::Lanes, w.ceilDiv(line.columns, STEPC_LEAF));
  forEachLeafOfRange(w, row, line, [&](const Tile &leaf) {
    emitTile(row, leaf, /*isFolded=*/Value(), run, /*isStrided=*/false);
    // Another thread may have the column in the next row.
    if (hasSums(Leaves::Columns))
      emitBarrier(w);
  });
}

/// A strip of a tile of a flat range: at once where the range has all of it.
void TileGridEmitter::emitRangeTile(const TileRow &row, const Tile &tile,
                                    func::FuncOp run) {
  clearSums(row, tile, Leaves::Columns, tile.columns);
  emitTileOfRange(
      w, row, tile,
      [&] {
        emitTile(row, tile, /*isFolded=*/Value(), run, /*isStrided=*/false);
      },
      [&](const Tile &line) { emitRangeRow(row, line, run); });
}

/// Part number `strip` (a word) of a chunk.
void TileGridEmitter::emitChunk(const TileRow &row, Value start, Value length,
                                Value strip, func::FuncOp run, bool isStrided) {
  Value zero = w.constantWord(0), one = w.constantWord(1);
  Value first = start, step = one, most = w.constantWord(width);
  Value offset = w.mul(strip, most), isSingleRow;
  if (canFoldRows() && !row.range) {
    isSingleRow = w.isLess(row.N, w.constantWord(2));
    first = w.select(isSingleRow, w.add(start, strip), first);
    step =
        w.select(isSingleRow, w.constantWord(STEPC_TILE_COLUMNS / width), step);
    most = w.select(isSingleRow, w.constantWord(STEPC_TILE_COLUMNS), most);
    offset = w.select(isSingleRow, zero, offset);
  }
  w.loop(w.toIndex(first), w.toIndex(w.add(start, length)), w.toIndex(step),
         [&](Value number) {
           Tile tile = locateTile(w, row, w.toWord(number));
           tile.firstColumn = w.add(tile.firstColumn, offset);
           tile.columns = w.max(w.min(w.sub(tile.columns, offset), most), zero);
           if (row.range)
             return emitRangeTile(row, tile, run);
           Value isFolded;
           if (isSingleRow) {
             Value last = w.constantWord(STEPC_TILE_COLUMNS - 1);
             isFolded = w.both(isSingleRow, w.isLess(last, tile.columns));
           }
           emitTile(row, tile, isFolded, run, isStrided);
         });
}

void TileGridEmitter::emitGrid(StringRef name, func::FuncOp run,
                               bool isStrided) {
  int64_t strips = STEPC_TILE_COLUMNS / width;
  gpu::GPUFuncOp kernel = emitChunkKernel(
      w, name,
      [&](const CallWords &call, Value number) {
        Value entry = w.div(number, w.constant(strips));
        Value strip = w.toWord(w.rem(number, w.constant(strips)));
        Value chunks = w.words(call.chunks);
        Value first = w.mul(entry, w.constant(3));
        TileRow row(w, storage, call, w.load(chunks, first));
        Value start = w.load(chunks, w.add(first, w.constant(1)));
        Value length = w.load(chunks, w.add(first, w.constant(2)));
        if (Value unless = traverse.getUnless())
          length = w.select(row.getScalar(unless), w.constantWord(0), length);
        emitChunk(row, start, length, strip, run, isStrided);
      },
      strips);
  // Addresses of strided rows take registers; waiting for more memory does not
  // make them faster.
  requireBlocks(kernel, isStrided ? 1 : 2);
}

void TileGridEmitter::emit() {
  std::string name = traverse.getSymName().str();
  func::FuncOp run = emitBlockRun(w.b, traverse, storage, name + "_run");
  // Ranges are dense.
  if (storage.getProgram().isFlatRange())
    return emitGrid(name, run, /*isStrided=*/false);
  func::FuncOp stridedRun =
      emitStridedBlockRun(w.b, traverse, storage, name + "_strided_run");
  emitGrid(name, run, /*isStrided=*/false);
  emitGrid(name + "_strided", stridedRun, /*isStrided=*/true);
}

void mlir::step::emitTileGrids(OpBuilder &builder, TraverseOp traverse,
                               const ProgramStorage &storage) {
  TileGridEmitter(builder, traverse, storage).emit();
}
