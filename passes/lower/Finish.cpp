//===- Finish.cpp - what runs once for a tensor ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/Finish.h"

#include "passes/lower/Combiners.h"
#include "passes/lower/Products.h"
#include "passes/schedule/Schedule.h"
#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

//===----------------------------------------------------------------------===//
// Traversals of vectors
//===----------------------------------------------------------------------===//

namespace {
/// The innermost dim of a traversal of vectors, and all others.
struct VectorDims {
  VectorDims(const TileRow &row, TraverseOp traverse)
      : extents(row.getExtents(getDims(traverse.getOver()))),
        items(getDimSet(traverse)) {
    if ((lane = items.getInnermost()))
      items = items - DimSet::of(*lane);
  }
  Extents extents;
  DimSet items;
  std::optional<unsigned> lane;
};
} // namespace

Value mlir::step::countItems(const TileRow &row, TraverseOp traverse) {
  VectorDims dims(row, traverse);
  return dims.extents.count(dims.items);
}

TileRunArguments mlir::step::getVectorArguments(const Words &w,
                                                const TileRow &row,
                                                TraverseOp traverse,
                                                Value item) {
  VectorDims dims(row, traverse);
  Value columns = dims.lane ? dims.extents[*dims.lane] : w.constantWord(1);
  TileRunArguments in;
  in.scalars = row.scalars;
  in.tensorSlots = row.tensorSlots;
  in.pitch = columns;
  in.leaves = w.ceilDiv(columns, STEPC_LEAF);
  in.rows = w.constant(1);
  in.cols = w.toIndex(columns);
  for (const Operand &operand : getOperands(traverse)) {
    DimSet own = getDimSet(traverse, operand);
    Value index = dims.extents.project(item, dims.items, own & dims.items);
    if (dims.lane && own.contains(*dims.lane))
      index = w.mul(index, columns);
    Value size = w.constantWord(operand.getBytes());
    in.operands.push_back(
        w.add(row.getAddress(operand.buffer), w.mul(index, size)));
  }
  for (const Accumulator &accumulator : getAccumulators(traverse)) {
    Value pitch = accumulator.is(Leaves::Lanes) ? in.leaves : columns;
    in.accumulators.push_back(
        w.add(row.getAddress(accumulator.partial),
              w.mul(w.mul(item, pitch), w.constantWord(8))));
  }
  return in;
}

//===----------------------------------------------------------------------===//
// Whole tensors
//===----------------------------------------------------------------------===//

/// The first entry of each place is a result; from number `firstIndex` on.
void FinishEmitter::storeFirst(const Destination &to, Value address,
                               const Places &places, Value firstIndex) {
  policy.forEach(places, [&](Value number, Value offset) {
    Value sum = w.load(w.view(address, w.b.getF64Type()), w.toIndex(offset));
    storeResult(w, row, to, sum,
                firstIndex ? w.add(firstIndex, number) : number);
  });
}

/// Of no elements: every result is the neutral value, or that divided.
void FinishEmitter::storeNeutral(const ReductionDims &in,
                                 const Destination &to) {
  Places results(row.getExtents(in.names).count(in.kept), w.constantWord(1));
  policy.forEach(results, [&](Value index, Value) {
    storeResult(w, row, to, emitNeutral(w, to.combiner, 0), index);
  });
}

/// From the innermost dim that is reduced outwards. Of [o, i, h, w] to
/// [1, i, 1, 1]: the leaves of each (o, i, h), the h of each (o, i), the o of
/// each i.
void FinishEmitter::combineWhole(const ReductionDims &in, const Destination &to,
                                 Value address) {
  PartialLayout layout(w, row, in);
  if (row.range && in.isKernel)
    clearUntouched(in, to, address, layout.getCount());
  std::optional<unsigned> rowDim = row.getDims().getRow();
  DimSet left = in.over;
  SmallVector<unsigned> reduced = in.reduced.getPositions();
  for (unsigned position : llvm::reverse(reduced)) {
    left = left - DimSet::of(position);
    Places::Dim leaves = layout.getLeaves(position);
    Entries entries{address, layout.getPlaces(left), leaves.extent,
                    leaves.stride};
    if (in.leaves == Leaves::Lanes && in.lane == position) {
      policy.foldPairwise(to.combiner, entries, /*width=*/Value());
    } else if (in.leaves == Leaves::Columns && rowDim == position) {
      entries.groups = layout.getPlaces(left - DimSet::of(*in.lane));
      policy.foldPairwise(to.combiner, entries, /*width=*/row.M);
    } else {
      policy.foldSequence(to.combiner, entries);
    }
  }
  storeFirst(to, address, layout.getPlaces(in.kept));
}

//===----------------------------------------------------------------------===//
// Flat ranges
//===----------------------------------------------------------------------===//

/// What the range did not touch of partial results that are there for the whole
/// tensor becomes neutral. What it touched lies together.
void FinishEmitter::clearUntouched(const ReductionDims &in,
                                   const Destination &to, Value address,
                                   Value count) {
  const TileRow::Range &range = *row.range;
  Value begin = range.begin, end = range.end;
  if (in.leaves != Leaves::Elements) {
    bool isLanes = in.leaves == Leaves::Lanes;
    Value first = isLanes ? range.firstRow : range.firstBlock;
    Value touched = isLanes ? range.rows : range.blocks;
    Value pitch = isLanes ? row.leaves : row.M;
    begin = w.mul(first, pitch);
    end = w.mul(w.add(first, touched), pitch);
  }
  Value zero = w.constantWord(0), one = w.constantWord(1);
  auto clear = [&](Value from, Value until) {
    policy.forEach(Places(w.sub(until, from), one), [&](Value number, Value) {
      w.store(emitNeutral(w, to.combiner, 0), w.view(address, w.b.getF64Type()),
              w.toIndex(w.add(from, number)));
    });
  };
  clear(zero, begin);
  clear(end, count);
  policy.wait();
}

/// The items that a range touches, in three parts that are each combined at
/// once: the first one, those between, and the last one. Of the first and the
/// last the range may have some rows only. `emitBody` gets the number of the
/// part's first item and how many it has, words; there may be none.
void FinishEmitter::forEachItems(function_ref<void(Value, Value)> emitBody) {
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

/// Of `size` rows or blocks from `own` on those from `first` to `end`: the
/// first of them, and how many there are. All are words.
static std::pair<Value, Value> clip(const Words &w, Value own, Value size,
                                    Value first, Value end) {
  Value from = w.max(own, first);
  Value until = w.min(w.add(own, size), end);
  return {from, w.max(w.sub(until, from), w.constantWord(0))};
}

/// The blocks of rows that the range touches, in each item on their own.
void FinishEmitter::combineRangeColumns(const Destination &to, Value address) {
  const TileRow::Range &range = *row.range;
  Value endBlock = w.add(range.firstBlock, range.blocks);
  forEachItems([&](Value item, Value count) {
    auto [from, blocks] = clip(w, w.mul(item, row.rowBlocks), row.rowBlocks,
                               range.firstBlock, endBlock);
    Value first =
        w.addressOf(address, w.mul(w.sub(from, range.firstBlock), row.M));
    Places groups(count, w.mul(row.rowBlocks, row.M));
    policy.foldPairwise(to.combiner, {first, groups, blocks, row.M}, row.M);
    Places columns(row.M, w.constantWord(1));
    columns.addOuter(groups.getDims().front());
    storeFirst(to, first, columns, w.mul(item, row.M));
  });
}

/// The rows that the range touches, in each item on their own.
void FinishEmitter::combineRangeItems(const Destination &to, Value address) {
  const TileRow::Range &range = *row.range;
  Value endRow = w.add(range.firstRow, range.rows);
  forEachItems([&](Value item, Value count) {
    auto [from, rows] =
        clip(w, w.mul(item, row.N), row.N, range.firstRow, endRow);
    Value first =
        w.addressOf(address, w.mul(w.sub(from, range.firstRow), row.leaves));
    Places groups(count, w.mul(row.N, row.leaves));
    policy.foldSequence(to.combiner, {first, groups, rows, row.leaves});
    storeFirst(to, first, groups, item);
  });
}

void FinishEmitter::foldLeaves(const Destination &to, Value address,
                               const Places &rows) {
  policy.foldPairwise(to.combiner,
                      {address, rows, row.leaves, w.constantWord(1)},
                      /*width=*/Value());
}

void FinishEmitter::combineRows(const Destination &to, Value address,
                                Value firstRow, Value rows) {
  Places places(rows, row.leaves);
  foldLeaves(to, address, places);
  storeFirst(to, address, places, firstRow);
}

/// What the range has touched, and nothing else: outer dims are kept, or all
/// are reduced.
void FinishEmitter::combineRange(const ReductionDims &in, const Destination &to,
                                 Value address) {
  const TileRow::Range &range = *row.range;
  if (in.leaves == Leaves::Columns)
    return combineRangeColumns(to, address);
  if (in.kept == row.getDims().getRows() && row.getDims().getRow())
    return combineRows(to, address, range.firstRow, range.rows);
  foldLeaves(to, address, Places(range.rows, row.leaves));
  if (!in.kept.empty())
    return combineRangeItems(to, address);
  policy.foldSequence(to.combiner, {address, Places(), range.rows, row.leaves});
  storeFirst(to, address, Places());
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void FinishEmitter::combine(CombineOp combine, const Destination &to) {
  ReductionDims in = getReductionDims(combine);
  Value address = row.getAddress(combine.getPartial());
  bool ofRange = row.range && in.isKernel;
  Value elements =
      ofRange ? row.range->elements : row.getExtents(in.names).count(in.over);
  // A range leaves results of its own rows, columns and items only.
  bool isPart = ofRange && !in.reducesOuter;
  if (isPart && !in.kept.empty()) {
    storeNeutral(in, to);
    policy.wait();
  }
  w.branch(
      w.isLess(w.constantWord(0), elements),
      [&] {
        isPart ? combineRange(in, to, address) : combineWhole(in, to, address);
      },
      [&] { storeNeutral(in, to); });
}

void FinishEmitter::emitCombine(CombineOp op) {
  Destination to = getDestination(w, row, op);
  if (!op.getUnless())
    return combine(op, to);
  // The partial results are not there.
  w.branch(
      row.getScalar(op.getUnless()),
      [&] {
        policy.byOne(
            [&] { storeResult(w, row, to, w.number(0.0), w.constantWord(0)); });
      },
      [&] { combine(op, to); });
}

/// In the order of the combine that sent it.
void FinishEmitter::emitReceive(ReceiveOp receive) {
  Destination to = getDestination(w, row, receive);
  ReductionDims in = getReductionDims(receive);
  Places results(row.getExtents(in.names).count(in.kept), w.constantWord(1));
  policy.forEach(results, [&](Value index, Value) {
    Value sum = loadReceived(w, row, receive, w.toIndex(index));
    storeResult(w, row, to, sum, index);
  });
}

void FinishEmitter::emit(ArrayRef<Operation *> entries,
                         const DenseMap<Operation *, func::FuncOp> &runs) {
  while (!entries.empty()) {
    ArrayRef<Operation *> scalars = entries.take_while(isScalarOfFinish);
    Operation *first = entries.front();
    if (!scalars.empty())
      policy.byOne([&] { emitTensorScalars(w, row, scalars); });
    else if (auto combine = dyn_cast<CombineOp>(first))
      emitCombine(combine);
    else if (auto receive = dyn_cast<ReceiveOp>(first))
      emitReceive(receive);
    else if (auto matrices = dyn_cast<ProgramMatrixOpInterface>(first))
      emitMatrices(w, row, policy, matrices);
    else
      policy.runVectors(row, cast<TraverseOp>(first), runs.lookup(first));
    policy.wait();
    entries = entries.drop_front(std::max<size_t>(scalars.size(), 1));
  }
}
