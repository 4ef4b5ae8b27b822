//===- TileFinish.cpp - what runs once for a tensor -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/FinishResults.h"
#include "passes/lower/cpu/ReductionTree.h"
#include "passes/lower/cpu/RowBlock.h"
#include "passes/lower/cpu/TileKernel.h"
#include "passes/lower/cpu/TileRun.h"
#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// Emits one finish function. `row` is the row of the table it works on.
class FinishEmitter {
public:
  FinishEmitter(OpBuilder &builder, const TileRow &row, const Words &w)
      : b(builder), row(row), w(w) {}

  void emitCombine(CombineOp combine);
  void emitReceive(ReceiveOp receive);
  void emitVectors(TraverseOp traverse, func::FuncOp run);

private:
  void storeResult(const Destination &to, Value sum, Value index) const {
    step::storeResult(w, row, to, sum, index);
  }
  void storeNeutral(const Destination &to, Level level, const Extents &in);
  void combineAll(CombineOp combine, const Destination &to, const Extents &in);
  void combineColumns(CombineOp combine, const Destination &to);
  void combineRows(CombineOp combine, const Destination &to, const Extents &in);
  void combineRangeColumns(CombineOp combine, const Destination &to);
  void combineRangeRows(CombineOp combine, const Destination &to);
  Value getWord(Value address, Value index) const {
    return w.add(address, w.mul(index, w.constantWord(8)));
  }
  /// The f64 at an address.
  Value loadAt(Value address) const {
    return w.load(w.view(address, b.getF64Type()), int64_t(0));
  }

  OpBuilder &b;
  const TileRow &row;
  const Words &w;
};
} // namespace

void FinishEmitter::combineColumns(CombineOp combine, const Destination &to) {
  Value partial = row.getAddress(combine.getPartial());
  Value zero = w.constant(0);
  w.loop(zero, w.toIndex(row.B), 1, [&](Value item) {
    Value number = w.toWord(item);
    Value first = getWord(partial, w.mul(w.mul(number, row.rowBlocks), row.M));
    emitPairwise(w, to.combiner, first, w.toIndex(row.rowBlocks), row.M,
                 w.toIndex(row.M));
    Value sums = w.view(first, b.getF64Type());
    Value base = w.mul(number, row.M);
    w.loop(zero, w.toIndex(row.M), 1, [&](Value column) {
      storeResult(to, w.load(sums, column), w.add(base, w.toWord(column)));
    });
  });
}

/// First the leaves of each row, then the rows of each item, then the items; as
/// far as the level goes.
void FinishEmitter::combineRows(CombineOp combine, const Destination &to,
                                const Extents &in) {
  Level level = getLevel(combine);
  Value partial = row.getAddress(combine.getPartial());
  Value zero = w.constant(0);
  w.loop(zero, w.toIndex(in.items), 1, [&](Value item) {
    Value firstRow = w.mul(w.toWord(item), in.rows);
    w.loop(zero, w.toIndex(in.rows), 1, [&](Value inner) {
      Value number = w.add(firstRow, w.toWord(inner));
      Value leaves = getWord(partial, w.mul(number, in.leaves));
      emitDense(w, to.combiner, leaves, w.toIndex(in.leaves));
      if (level == Level::Rows)
        storeResult(to, loadAt(leaves), number);
    });
    if (level == Level::Rows)
      return;
    Value first = getWord(partial, w.mul(firstRow, in.leaves));
    emitSequence(w, to.combiner, first, w.toIndex(in.rows), in.leaves);
    if (level == Level::Items)
      storeResult(to, loadAt(first), w.toWord(item));
  });
  if (level != Level::Tensor)
    return;
  emitSequence(w, to.combiner, partial, w.toIndex(in.items),
               w.mul(in.rows, in.leaves));
  storeResult(to, loadAt(partial), w.constantWord(0));
}

/// Of a flat range: the blocks that it touches, in each item on their own.
void FinishEmitter::combineRangeColumns(CombineOp combine,
                                        const Destination &to) {
  const TileRow::Range &range = *row.range;
  Value partial = row.getAddress(combine.getPartial());
  Value endBlock = w.add(range.firstBlock, range.blocks);
  w.loop(w.constant(0), w.toIndex(range.items), 1, [&](Value inner) {
    Value item = w.add(range.firstItem, w.toWord(inner));
    Value own = w.mul(item, row.rowBlocks);
    Value from = w.max(own, range.firstBlock);
    Value until = w.min(w.add(own, row.rowBlocks), endBlock);
    Value first = getWord(partial, w.mul(w.sub(from, range.firstBlock), row.M));
    emitPairwise(w, to.combiner, first, w.toIndex(w.sub(until, from)), row.M,
                 w.toIndex(row.M));
    Value sums = w.view(first, b.getF64Type());
    Value base = w.mul(item, row.M);
    w.loop(w.constant(0), w.toIndex(row.M), 1, [&](Value column) {
      storeResult(to, w.load(sums, column), w.add(base, w.toWord(column)));
    });
  });
}

/// Of a flat range: the rows that it touches, in each item on their own.
void FinishEmitter::combineRangeRows(CombineOp combine, const Destination &to) {
  const TileRow::Range &range = *row.range;
  Level level = getLevel(combine);
  Value partial = row.getAddress(combine.getPartial());
  Value zero = w.constant(0);
  w.loop(zero, w.toIndex(range.rows), 1, [&](Value inner) {
    Value number = w.toWord(inner);
    Value leaves = getWord(partial, w.mul(number, row.leaves));
    emitDense(w, to.combiner, leaves, w.toIndex(row.leaves));
    if (level == Level::Rows)
      storeResult(to, loadAt(leaves), w.add(range.firstRow, number));
  });
  if (level == Level::Rows)
    return;
  if (level == Level::Tensor) {
    emitSequence(w, to.combiner, partial, w.toIndex(range.rows), row.leaves);
    return storeResult(to, loadAt(partial), w.constantWord(0));
  }
  Value endRow = w.add(range.firstRow, range.rows);
  w.loop(zero, w.toIndex(range.items), 1, [&](Value inner) {
    Value item = w.add(range.firstItem, w.toWord(inner));
    Value from = w.max(w.mul(item, row.N), range.firstRow);
    Value end = w.min(w.mul(w.add(item, w.constantWord(1)), row.N), endRow);
    Value first =
        getWord(partial, w.mul(w.sub(from, range.firstRow), row.leaves));
    emitSequence(w, to.combiner, first, w.toIndex(w.sub(end, from)),
                 row.leaves);
    storeResult(to, loadAt(first), item);
  });
}

/// Of no elements: every result is the neutral value, or that divided.
void FinishEmitter::storeNeutral(const Destination &to, Level level,
                                 const Extents &in) {
  w.loop(w.constant(0), w.toIndex(countResults(w, level, in)), 1,
         [&](Value index) {
           storeResult(to, emitNeutral(w, to.combiner, 0), w.toWord(index));
         });
}

void FinishEmitter::emitCombine(CombineOp combine) {
  Extents in = getExtents(w, row, getSpace(combine));
  Destination to = getDestination(w, combine, in);
  if (!combine.getUnless())
    return combineAll(combine, to, in);
  Value zero =
      arith::ConstantOp::create(b, w.loc, b.getFloatAttr(b.getF64Type(), 0.0));
  // The partial results are not there.
  w.branch(
      row.getScalar(combine.getUnless()),
      [&] { storeResult(to, zero, w.constantWord(0)); },
      [&] { combineAll(combine, to, in); });
}

void FinishEmitter::combineAll(CombineOp combine, const Destination &to,
                               const Extents &in) {
  bool ofRange = row.range && getSpace(combine) == Space::Tiles;
  Value elements = ofRange ? row.range->elements
                           : w.mul(in.items, w.mul(in.rows, in.columns));
  // A range leaves results of its own rows, columns and items only.
  if (ofRange && getLevel(combine) != Level::Tensor)
    storeNeutral(to, getLevel(combine), in);
  bool columns = getLevel(combine) == Level::Columns;
  w.branch(
      w.isLess(w.constantWord(0), elements),
      [&] {
        if (ofRange)
          columns ? combineRangeColumns(combine, to)
                  : combineRangeRows(combine, to);
        else
          columns ? combineColumns(combine, to) : combineRows(combine, to, in);
      },
      [&] { storeNeutral(to, getLevel(combine), in); });
}

/// In the order of the combine that sent it.
void FinishEmitter::emitReceive(ReceiveOp receive) {
  Extents in = getExtents(w, row, getSpace(receive));
  Destination to = getDestination(w, receive, in);
  Value count = w.toIndex(countResults(w, getLevel(receive), in));
  w.loop(w.constant(0), count, 1, [&](Value index) {
    storeResult(to, loadReceived(w, row, receive, index), w.toWord(index));
  });
}

/// A phase of vectors: one call for each item.
void FinishEmitter::emitVectors(TraverseOp traverse, func::FuncOp run) {
  Extents in = getExtents(w, row, getSpace(traverse));
  w.loop(w.constant(0), w.toIndex(in.items), 1, [&](Value item) {
    Value number = w.toWord(item);
    TileRunArguments arguments;
    arguments.scalars = row.scalars;
    arguments.tensorSlots = row.tensorSlots;
    for (const Operand &operand : getOperands(traverse)) {
      Value element = getAccess(traverse, operand) == Access::Tile
                          ? w.mul(number, in.columns)
                          : number;
      Value size = w.constantWord(operand.getBytes());
      arguments.operands.push_back(
          w.add(row.getAddress(operand.buffer), w.mul(element, size)));
    }
    for (const Accumulator &accumulator : getAccumulators(traverse))
      arguments.accumulators.push_back(getWord(
          row.getAddress(accumulator.partial), w.mul(number, in.leaves)));
    arguments.pitch = in.columns;
    arguments.leaves = in.leaves;
    arguments.rows = w.constant(1);
    arguments.cols = w.toIndex(in.columns);
    func::CallOp::create(b, w.loc, run, arguments.getValues());
  });
}

void mlir::step::emitFinish(OpBuilder &builder, const ProgramStorage &storage,
                            StringRef name, ArrayRef<Operation *> entries,
                            bool isOfRowBlocks) {
  Location loc = storage.getProgram()->getLoc();
  // Their functions first: one does not stand inside the other.
  DenseMap<Operation *, func::FuncOp> runs;
  for (Operation *entry : entries)
    if (auto traverse = dyn_cast<TraverseOp>(entry))
      runs[entry] = getTileRun(builder, traverse, storage, /*prefetchLines=*/0);
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
    FinishEmitter emitter(builder, row, w);
    for (ArrayRef<Operation *> left(entries); !left.empty();) {
      auto scalars = left.take_while(isScalarOfFinish);
      emitTensorScalars(w, row, scalars);
      left = left.drop_front(scalars.size());
      if (left.empty())
        break;
      if (auto combine = dyn_cast<CombineOp>(left.front()))
        emitter.emitCombine(combine);
      else if (auto receive = dyn_cast<ReceiveOp>(left.front()))
        emitter.emitReceive(receive);
      else
        emitter.emitVectors(cast<TraverseOp>(left.front()),
                            runs.lookup(left.front()));
      left = left.drop_front();
    }
  };
  if (isOfRowBlocks)
    w.branch(emitGoesByRowBlocks(w, row), [] {}, emitAll);
  else
    emitAll();
  func::ReturnOp::create(builder, loc);
}
