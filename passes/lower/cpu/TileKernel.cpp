//===- TileKernel.cpp - kernels of the tiles space ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/TileKernel.h"

#include "passes/lower/cpu/RowBlock.h"
#include "passes/lower/cpu/TilePhase.h"
#include "passes/lower/cpu/TileRun.h"
#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

/// About how many elements of a block of rows a phase of a train does before
/// the next one follows: few enough to be in the second-level cache then, with
/// thousands of columns too. There are as many rows as make whole vectors.
static constexpr int64_t kStripElements = 8192;

namespace {
/// Emits the two kernels of a phase, or the one of flat ranges. Where phases
/// trail it, it runs them too, strip of rows by strip of rows.
class TileKernelEmitter {
public:
  TileKernelEmitter(OpBuilder &builder, const ProgramStorage &storage,
                    ArrayRef<ScheduleEntry> train, int64_t prefetchLines);

  void emit();

private:
  enum class Rows { Contiguous, Strided, Range };
  void emitEntry(StringRef name, Rows rows);
  void emitPhase(const TileRow &row, const Tile &tile, const TilePhase &phase,
                 Rows rows) const;
  void emitTile(const TileRow &row, const RowBlock &block, Rows rows) const;
  void emitTrain(const TileRow &row, const RowBlock &block, Rows rows) const;
  Value emitStripRows(const Tile &tile) const;

  Words w;
  const ProgramStorage &storage;
  TraverseOp head;
  bool isTrailing;
  /// Its own, and of those that trail it, of dense rows and of copied ones;
  /// `betweens` has what is computed of a strip of rows before each.
  SmallVector<func::FuncOp> runs, copiedRuns, betweens;
  SmallVector<TraverseOp> phases;
  SmallVector<TilePhase> emitters;
};
} // namespace

TileKernelEmitter::TileKernelEmitter(OpBuilder &builder,
                                     const ProgramStorage &storage,
                                     ArrayRef<ScheduleEntry> train,
                                     int64_t prefetchLines)
    : w(builder, TraverseOp(train.front().kernel).getLoc()), storage(storage),
      head(train.front().kernel), isTrailing(train.front().isTrailing) {
  func::FuncOp between;
  for (const ScheduleEntry &entry : train) {
    if (!entry.kernel) {
      between = emitRowBlockFinish(builder, storage, entry.name + "_rows",
                                   entry.finish);
      continue;
    }
    phases.push_back(entry.kernel);
    runs.push_back(getTileRun(builder, entry.kernel, storage, prefetchLines));
    copiedRuns.push_back(
        storage.getProgram().isFlatRange()
            ? func::FuncOp()
            : getListedTileRun(builder, entry.kernel, storage, prefetchLines));
    betweens.push_back(std::exchange(between, {}));
  }
}

void TileKernelEmitter::emitPhase(const TileRow &row, const Tile &tile,
                                  const TilePhase &phase, Rows rows) const {
  switch (rows) {
  case Rows::Contiguous:
    return phase.emitContiguous(row, tile);
  case Rows::Strided:
    return phase.emitStrided(row, tile);
  case Rows::Range:
    return phase.emitRange(row, tile);
  }
}

/// How many rows a strip has: whole vectors of what is computed of rows. A
/// block of rows has columns.
Value TileKernelEmitter::emitStripRows(const Tile &tile) const {
  Value rows = w.div(w.constantWord(kStripElements), tile.columns);
  rows = w.mul(w.div(rows, w.constantWord(STEPC_LANES)),
               w.constantWord(STEPC_LANES));
  return w.max(rows, w.constantWord(STEPC_LANES));
}

/// All phases on a tile that is a block of rows.
void TileKernelEmitter::emitTrain(const TileRow &row, const RowBlock &block,
                                  Rows rows) const {
  for (const TilePhase &phase : emitters)
    phase.clearColumns(row, block.tile);
  Value step = emitStripRows(block.tile);
  w.loop(w.constant(0), w.toIndex(block.tile.rows), w.toIndex(step),
         [&](Value start) {
           RowBlock strip = block;
           Value first = w.toWord(start);
           strip.tile.firstRow = w.add(block.tile.firstRow, first);
           strip.tile.rows = w.min(w.sub(block.tile.rows, first), step);
           for (auto [index, phase] : llvm::enumerate(emitters)) {
             if (betweens[index])
               func::CallOp::create(w.b, w.loc, betweens[index],
                                    strip.getValues());
             emitPhase(row, strip.tile, phase, rows);
           }
         });
}

/// Where the tensor goes by blocks of rows, the kernel at the head of a train
/// runs all of its phases, and those that trail have nothing to do.
void TileKernelEmitter::emitTile(const TileRow &row, const RowBlock &block,
                                 Rows rows) const {
  auto emitAlone = [&] {
    emitters.front().clearColumns(row, block.tile);
    emitPhase(row, block.tile, emitters.front(), rows);
  };
  if (phases.size() == 1 && !isTrailing)
    return emitAlone();
  w.branch(
      emitGoesByRowBlocks(w, row),
      [&] {
        if (!isTrailing)
          emitTrain(row, block, rows);
      },
      emitAlone);
}

/// `void name(call, begin, end)`: StepcKernel.
void TileKernelEmitter::emitEntry(StringRef name, Rows rows) {
  Type i64 = w.b.getI64Type();
  auto function = func::FuncOp::create(
      w.b, w.loc, name, w.b.getFunctionType({i64, i64, i64}, {}));
  OpBuilder::InsertionGuard guard(w.b);
  Block *entry = function.addEntryBlock();
  w.b.setInsertionPointToStart(entry);
  emitters.clear();
  for (auto [phase, run] :
       llvm::zip(phases, rows == Rows::Strided ? copiedRuns : runs)) {
    emitters.emplace_back(w, phase, run);
    if (rows == Rows::Strided)
      emitters.back().allocateCopies();
  }
  Value address = entry->getArgument(0);
  CallWords call = CallWords::load(w, address);
  w.loop(w.toIndex(entry->getArgument(1)), w.toIndex(entry->getArgument(2)), 1,
         [&](Value index) {
           Value chunks = w.words(call.chunks);
           Value first = w.mul(index, w.constant(3));
           Value number = w.load(chunks, first);
           TileRow row(w, storage, call, number);
           Value start = w.toIndex(w.load(chunks, w.add(first, w.constant(1))));
           Value length =
               w.toIndex(w.load(chunks, w.add(first, w.constant(2))));
           w.loop(start, w.add(start, length), 1, [&](Value position) {
             Tile tile = locateTile(w, row, w.toWord(position));
             emitTile(row, {address, number, tile}, rows);
           });
         });
  func::ReturnOp::create(w.b, w.loc);
}

void TileKernelEmitter::emit() {
  std::string name = head.getSymName().str();
  // Ranges are dense.
  if (storage.getProgram().isFlatRange())
    return emitEntry(name, Rows::Range);
  emitEntry(name, Rows::Contiguous);
  emitEntry(name + "_strided", Rows::Strided);
}

void mlir::step::emitTileKernels(OpBuilder &builder,
                                 const ProgramStorage &storage,
                                 ArrayRef<ScheduleEntry> train,
                                 int64_t prefetchLines) {
  TileKernelEmitter(builder, storage, train, prefetchLines).emit();
}
