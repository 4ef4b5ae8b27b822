//===- TileFinish.cpp - what a worker runs once for a tensor --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/WorkerPolicy.h"

#include "passes/lower/cpu/ReductionTree.h"
#include "passes/lower/cpu/RowBlock.h"
#include "passes/lower/cpu/TileKernel.h"
#include "passes/lower/cpu/TileRun.h"

using namespace mlir;
using namespace mlir::step;

/// Loops inside of loops, without a division.
void WorkerPolicy::forEach(
    const Places &places,
    function_ref<void(Value number, Value offset)> emitBody) const {
  auto emitDims = [&](auto &&emitDims, ArrayRef<Places::Dim> dims, Value number,
                      Value offset) -> void {
    if (dims.empty())
      return emitBody(number, offset);
    Places::Dim dim = dims.front();
    w.loop(w.constant(0), w.toIndex(dim.extent), 1, [&](Value index) {
      Value own = w.toWord(index);
      emitDims(emitDims, dims.drop_front(),
               w.add(w.mul(number, dim.extent), own),
               w.add(offset, w.mul(own, dim.stride)));
    });
  };
  Value zero = w.constantWord(0);
  emitDims(emitDims, places.getDims(), zero, zero);
}

void WorkerPolicy::foldPairwise(Combiner combiner, const Entries &entries,
                                Value width) const {
  forEach(entries.groups, [&](Value, Value offset) {
    Value first = w.addressOf(entries.address, offset);
    Value count = w.toIndex(entries.count);
    if (width)
      emitPairwise(w, combiner, first, count, entries.stride, w.toIndex(width));
    else
      emitDense(w, combiner, first, count);
  });
}

void WorkerPolicy::foldSequence(Combiner combiner,
                                const Entries &entries) const {
  forEach(entries.groups, [&](Value, Value offset) {
    emitSequence(w, combiner, w.addressOf(entries.address, offset),
                 w.toIndex(entries.count), entries.stride);
  });
}

/// One call for each item.
void WorkerPolicy::runVectors(const TileRow &row, TraverseOp traverse,
                              func::FuncOp run) const {
  Places items(countItems(row, traverse), w.constantWord(1));
  forEach(items, [&](Value item, Value) {
    TileRunArguments in = getVectorArguments(w, row, traverse, item);
    func::CallOp::create(w.b, w.loc, run, in.getValues());
  });
}

DenseMap<Operation *, func::FuncOp>
mlir::step::getVectorRuns(OpBuilder &builder, const ProgramStorage &storage,
                          ArrayRef<Operation *> entries) {
  DenseMap<Operation *, func::FuncOp> runs;
  for (Operation *entry : entries)
    if (auto traverse = dyn_cast<TraverseOp>(entry))
      runs[entry] = getTileRun(builder, traverse, storage, /*prefetchLines=*/0);
  return runs;
}

void mlir::step::emitFinish(OpBuilder &builder, const ProgramStorage &storage,
                            StringRef name, ArrayRef<Operation *> entries,
                            bool isOfRowBlocks, bool avx512) {
  Location loc = storage.getProgram()->getLoc();
  // Their functions first: one does not stand inside the other.
  auto runs = getVectorRuns(builder, storage, entries);
  Type i64 = builder.getI64Type();
  auto function = func::FuncOp::create(builder, loc, name,
                                       builder.getFunctionType({i64, i64}, {}));
  OpBuilder::InsertionGuard guard(builder);
  Block *block = function.addEntryBlock();
  builder.setInsertionPointToStart(block);
  Words w(builder, loc);
  TileRow row(w, storage, CallWords::load(w, block->getArgument(0)),
              block->getArgument(1));
  auto emitAll = [&] {
    WorkerPolicy policy(w, avx512);
    FinishEmitter(w, row, policy).emit(entries, runs);
  };
  if (isOfRowBlocks)
    w.branch(emitGoesByRowBlocks(w, row), [] {}, emitAll);
  else
    emitAll();
  func::ReturnOp::create(builder, loc);
}
