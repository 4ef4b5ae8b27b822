//===- FinishGrid.cpp - what a block runs once for a tensor ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/FinishResults.h"
#include "passes/lower/cuda/BlockRun.h"
#include "passes/lower/cuda/BlockTree.h"
#include "passes/lower/cuda/GridKernel.h"
#include "passes/lower/cuda/TileGrid.h"
#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// Emits the entries of one finish. `row` is the row of the table that the
/// block works on; each entry ends when all threads have.
class BlockFinishEmitter {
public:
  BlockFinishEmitter(const Words &w, const TileRow &row) : w(w), row(row) {}

  void emitCombine(CombineOp combine);
  void emitReceive(ReceiveOp receive);
  void emitVectors(TraverseOp traverse, func::FuncOp run);
  void emitScalars(ArrayRef<Operation *> scalars) {
    emitByOneThread(w, [&] { emitTensorScalars(w, row, scalars); });
  }

private:
  void combineAll(CombineOp combine, const Destination &to, const Extents &in);
  void combineRange(Level level, Value partial, const Destination &to);
  void forEachItems(function_ref<void(Value, Value)> emitBody);
  void combineRangeColumns(Value partial, const Destination &to);
  void combineRangeItems(Value partial, const Destination &to);
  void combineRangeRows(Level level, Value partial, const Destination &to);
  void storeNeutral(const Destination &to, Level level, const Extents &in);
  void combineColumns(const PartialGroups &leaves, const Destination &to);
  void combineRows(Level level, Value partial, const Destination &to,
                   const Extents &in);
  void storeFirst(const PartialGroups &in, const Destination &to);
  void store(const Destination &to, Value sum, Value index) {
    storeResult(w, row, to, sum, index);
  }
  Value loadAt(Value address, Value index) const {
    return w.load(w.view(address, w.b.getF64Type()), w.toIndex(index));
  }

  const Words &w;
  const TileRow &row;
};
} // namespace

/// The first entry of each group is its result.
void BlockFinishEmitter::storeFirst(const PartialGroups &in,
                                    const Destination &to) {
  emitBlockLoop(w, in.groups, [&](Value group) {
    store(to, loadAt(in.address, w.mul(group, in.pitch)), group);
  });
}

void BlockFinishEmitter::combineColumns(const PartialGroups &leaves,
                                        const Destination &to) {
  emitBlockPairwise(w, to.combiner, leaves, row.M);
  emitBlockLoop(w, w.mul(row.B, row.M), [&](Value i) {
    Value item = w.div(i, row.M), column = w.rem(i, row.M);
    store(to, loadAt(leaves.address, w.add(w.mul(item, leaves.pitch), column)),
          i);
  });
}

/// First the leaves of each row, then the rows of each item, then the items; as
/// far as the level goes.
void BlockFinishEmitter::combineRows(Level level, Value partial,
                                     const Destination &to, const Extents &in) {
  Value one = w.constantWord(1), zero = w.constantWord(0);
  PartialGroups leaves{partial, w.mul(in.items, in.rows), in.leaves, in.leaves,
                       one};
  emitBlockPairwise(w, to.combiner, leaves, one);
  if (level == Level::Rows)
    return storeFirst(leaves, to);
  Value itemPitch = w.mul(in.rows, in.leaves);
  PartialGroups rows{partial, in.items, itemPitch, in.rows, in.leaves};
  emitBlockSequence(w, to.combiner, rows);
  if (level == Level::Items)
    return storeFirst(rows, to);
  PartialGroups items{partial, one, zero, in.items, itemPitch};
  emitBlockSequence(w, to.combiner, items);
  storeFirst(items, to);
}

/// The items that a range touches, in three parts that are each combined at
/// once: the first one, those between, and the last one. Of the first and the
/// last the range may have some rows only. `emitBody` gets the number of the
/// part's first item and how many it has, words; there may be none.
void BlockFinishEmitter::forEachItems(
    function_ref<void(Value, Value)> emitBody) {
  Value zero = w.constantWord(0), one = w.constantWord(1);
  Value items = row.range->items;
  w.loop(w.constant(0), w.constant(3), 1, [&](Value index) {
    Value part = w.toWord(index);
    Value isLast = w.isLess(one, part);
    Value last = w.max(w.sub(items, one), one);
    Value first = w.select(isLast, last, part);
    Value end = w.select(isLast, items, w.sub(items, one));
    end = w.select(w.isLess(part, one), w.min(items, one), end);
    emitBody(w.add(row.range->firstItem, first),
             w.max(w.sub(end, first), zero));
  });
}

/// The blocks of rows that the range touches, in each item on their own.
void BlockFinishEmitter::combineRangeColumns(Value partial,
                                             const Destination &to) {
  const TileRow::Range &range = *row.range;
  Value endBlock = w.add(range.firstBlock, range.blocks);
  forEachItems([&](Value item, Value count) {
    Value own = w.mul(item, row.rowBlocks);
    Value from = w.max(own, range.firstBlock);
    Value until = w.min(w.add(own, row.rowBlocks), endBlock);
    Value entries = w.max(w.sub(until, from), w.constantWord(0));
    Value offset = w.mul(w.sub(from, range.firstBlock), row.M);
    PartialGroups leaves{w.add(partial, w.mul(offset, w.constantWord(8))),
                         count, w.mul(row.rowBlocks, row.M), entries, row.M};
    emitBlockPairwise(w, to.combiner, leaves, row.M);
    emitBlockLoop(w, w.mul(count, row.M), [&](Value i) {
      Value inner = w.div(i, row.M), column = w.rem(i, row.M);
      Value place = w.add(w.mul(inner, leaves.pitch), column);
      store(to, loadAt(leaves.address, place),
            w.add(w.mul(w.add(item, inner), row.M), column));
    });
  });
}

/// The rows that the range touches, in each item on their own.
void BlockFinishEmitter::combineRangeItems(Value partial,
                                           const Destination &to) {
  const TileRow::Range &range = *row.range;
  Value endRow = w.add(range.firstRow, range.rows);
  forEachItems([&](Value item, Value count) {
    Value own = w.mul(item, row.N);
    Value from = w.max(own, range.firstRow);
    Value until = w.min(w.add(own, row.N), endRow);
    Value entries = w.max(w.sub(until, from), w.constantWord(0));
    Value offset = w.mul(w.sub(from, range.firstRow), row.leaves);
    PartialGroups rows{w.add(partial, w.mul(offset, w.constantWord(8))), count,
                       w.mul(row.N, row.leaves), entries, row.leaves};
    emitBlockSequence(w, to.combiner, rows);
    emitBlockLoop(w, count, [&](Value inner) {
      store(to, loadAt(rows.address, w.mul(inner, rows.pitch)),
            w.add(item, inner));
    });
  });
}

/// First the leaves of each row that the range touches, then as far as the
/// level goes.
void BlockFinishEmitter::combineRangeRows(Level level, Value partial,
                                          const Destination &to) {
  const TileRow::Range &range = *row.range;
  Value one = w.constantWord(1), zero = w.constantWord(0);
  PartialGroups leaves{partial, range.rows, row.leaves, row.leaves, one};
  emitBlockPairwise(w, to.combiner, leaves, one);
  if (level == Level::Items)
    return combineRangeItems(partial, to);
  if (level == Level::Tensor) {
    PartialGroups rows{partial, one, zero, range.rows, row.leaves};
    emitBlockSequence(w, to.combiner, rows);
    return storeFirst(rows, to);
  }
  emitBlockLoop(w, range.rows, [&](Value number) {
    store(to, loadAt(partial, w.mul(number, row.leaves)),
          w.add(range.firstRow, number));
  });
}

void BlockFinishEmitter::combineRange(Level level, Value partial,
                                      const Destination &to) {
  if (level == Level::Columns)
    combineRangeColumns(partial, to);
  else
    combineRangeRows(level, partial, to);
}

/// Of no elements: every result is the neutral value, or that divided.
void BlockFinishEmitter::storeNeutral(const Destination &to, Level level,
                                      const Extents &in) {
  emitBlockLoop(w, countResults(w, level, in), [&](Value index) {
    store(to, emitNeutral(w, to.combiner, 0), index);
  });
}

void BlockFinishEmitter::combineAll(CombineOp combine, const Destination &to,
                                    const Extents &in) {
  bool ofRange = row.range && getSpace(combine) == Space::Tiles;
  Value elements = ofRange ? row.range->elements
                           : w.mul(in.items, w.mul(in.rows, in.columns));
  Value partial = row.getAddress(combine.getPartial());
  // A range leaves results of its own rows, columns and items only.
  if (ofRange && getLevel(combine) != Level::Tensor) {
    storeNeutral(to, getLevel(combine), in);
    emitBarrier(w);
  }
  w.branch(
      w.isLess(w.constantWord(0), elements),
      [&] {
        if (ofRange)
          combineRange(getLevel(combine), partial, to);
        else if (getLevel(combine) == Level::Columns)
          combineColumns({partial, row.B, w.mul(row.rowBlocks, row.M),
                          row.rowBlocks, row.M},
                         to);
        else
          combineRows(getLevel(combine), partial, to, in);
      },
      [&] { storeNeutral(to, getLevel(combine), in); });
}

void BlockFinishEmitter::emitCombine(CombineOp combine) {
  Extents in = getExtents(w, row, getSpace(combine));
  Destination to = getDestination(w, combine, in);
  if (!combine.getUnless())
    return combineAll(combine, to, in);
  Value zero = arith::ConstantOp::create(w.b, w.loc, w.b.getF64FloatAttr(0.0));
  // The partial results are not there.
  w.branch(
      row.getScalar(combine.getUnless()),
      [&] { emitByOneThread(w, [&] { store(to, zero, w.constantWord(0)); }); },
      [&] { combineAll(combine, to, in); });
}

void BlockFinishEmitter::emitReceive(ReceiveOp receive) {
  Extents in = getExtents(w, row, getSpace(receive));
  Destination to = getDestination(w, receive, in);
  emitBlockLoop(w, countResults(w, getLevel(receive), in), [&](Value index) {
    store(to, loadReceived(w, row, receive, w.toIndex(index)), index);
  });
}

/// A phase of vectors: those of all items are the rows of one run.
void BlockFinishEmitter::emitVectors(TraverseOp traverse, func::FuncOp run) {
  Extents in = getExtents(w, row, getSpace(traverse));
  TileRunArguments arguments;
  arguments.scalars = row.scalars;
  arguments.tensorSlots = row.tensorSlots;
  for (const Operand &operand : getOperands(traverse))
    arguments.operands.push_back(row.getAddress(operand.buffer));
  for (const Accumulator &accumulator : getAccumulators(traverse))
    arguments.accumulators.push_back(row.getAddress(accumulator.partial));
  arguments.pitch = in.columns;
  arguments.leaves = in.leaves;
  arguments.rows = w.toIndex(in.items);
  arguments.cols = w.toIndex(in.columns);
  func::CallOp::create(w.b, w.loc, run, arguments.getValues());
}

void mlir::step::emitFinishGrid(OpBuilder &builder,
                                const ProgramStorage &storage, StringRef name,
                                ArrayRef<Operation *> entries) {
  // Their functions first: one does not stand inside the other.
  DenseMap<Operation *, func::FuncOp> runs;
  for (Operation *entry : entries)
    if (auto traverse = dyn_cast<TraverseOp>(entry))
      runs[entry] = emitBlockRun(builder, traverse, storage,
                                 (traverse.getSymName() + "_run").str());
  Words w(builder, storage.getProgram()->getLoc());
  auto emitRow = [&](const CallWords &call, Value number) {
    Value index = w.load(w.words(call.chunks), w.mul(number, w.constant(3)));
    TileRow row(w, storage, call, index);
    BlockFinishEmitter emitter(w, row);
    for (ArrayRef<Operation *> left(entries); !left.empty();) {
      ArrayRef<Operation *> scalars = left.take_while(isScalarOfFinish);
      if (!scalars.empty()) {
        emitter.emitScalars(scalars);
        emitBarrier(w);
        left = left.drop_front(scalars.size());
        continue;
      }
      if (auto combine = dyn_cast<CombineOp>(left.front()))
        emitter.emitCombine(combine);
      else if (auto receive = dyn_cast<ReceiveOp>(left.front()))
        emitter.emitReceive(receive);
      else
        emitter.emitVectors(cast<TraverseOp>(left.front()),
                            runs.lookup(left.front()));
      emitBarrier(w);
      left = left.drop_front();
    }
  };
  requireBlocks(emitChunkKernel(w, name, emitRow), 1);
}

void mlir::step::emitStatisticGrid(const Words &w, StringRef name,
                                   Combiner combiner) {
  Type f64 = w.b.getF64Type();
  auto emitEntry = [&](ArrayRef<Value> entry) {
    Value sources = w.words(entry[0]), count = entry[1];
    Value scratch = w.view(entry[2], f64), zero = w.constantWord(0);
    Value neutral = emitNeutral(w, combiner, 0);
    emitBlockLoop(w, count, [&](Value i) {
      Value index = w.toIndex(i), source = w.load(sources, index);
      w.branch(
          isZero(w, source), [&] { w.store(neutral, scratch, index); },
          [&] {
            w.store(w.load(w.view(source, f64), int64_t(0)), scratch, index);
          });
    });
    emitBarrier(w);
    PartialGroups all{entry[2], w.constantWord(1), zero, count,
                      w.constantWord(1)};
    emitBlockSequence(w, combiner, all);
    emitByOneThread(w, [&] {
      Value result = w.view(entry[3], f64);
      w.branch(
          w.isLess(zero, count),
          [&] { w.store(w.load(scratch, int64_t(0)), result, w.constant(0)); },
          [&] { w.store(neutral, result, w.constant(0)); });
    });
    emitBarrier(w);
  };
  requireBlocks(emitBlockListKernel(w, name, 4, emitEntry), 1);
}
