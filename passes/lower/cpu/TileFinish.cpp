//===- TileFinish.cpp - what runs once for a tensor -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/ReductionTree.h"
#include "passes/lower/cpu/TileKernel.h"
#include "passes/lower/cpu/TileRow.h"
#include "passes/lower/cpu/TileRun.h"
#include "stepc/kernel_abi.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// The extents of what a phase of a space traverses. All values are words.
struct Extents {
  Value items, rows, columns; // B', N', M'
  Value leaves;               // ceil(M' / 1024)
};

/// Emits one finish function. `row` is the row of the table it works on.
class FinishEmitter {
public:
  FinishEmitter(OpBuilder &builder, ProgramOp program, const TileRow &row,
                const Words &w)
      : b(builder), program(program), row(row), w(w) {}

  void emitCombine(CombineOp combine);
  void emitVectors(PhaseOp phase, func::FuncOp run);
  void emitScalars(TensorScalarsOp scalars);

private:
  Extents getExtents(Space space) const;
  Value emitResult(CombineOp combine, Value sum, Value count);
  void storeResult(CombineOp combine, Value sum, Value count, Value index);
  void combineColumns(CombineOp combine);
  void combineRows(CombineOp combine, const Extents &extents);
  void emitEmpty(CombineOp combine, const Extents &extents);
  Value getWord(Value address, Value index) const {
    return w.add(address, w.mul(index, w.constantWord(8)));
  }
  /// The f64 at an address.
  Value loadAt(Value address) const {
    return w.load(w.view(address, b.getF64Type()), int64_t(0));
  }

  OpBuilder &b;
  ProgramOp program;
  const TileRow &row;
  const Words &w;
};
} // namespace

Extents FinishEmitter::getExtents(Space space) const {
  Value one = w.constantWord(1);
  switch (space) {
  case Space::Rows:
    return {row.B, one, row.N, w.ceilDiv(row.N, STEPC_LEAF)};
  case Space::Columns:
    return {row.B, one, row.M, row.leaves};
  case Space::Items:
    return {one, one, row.B, w.ceilDiv(row.B, STEPC_LEAF)};
  default:
    return {row.B, row.N, row.M, row.leaves};
  }
}

/// What becomes of the sum of `count` (a word) values: for a temp, in its type.
Value FinishEmitter::emitResult(CombineOp combine, Value sum, Value count) {
  if (combine.getMean()) {
    Value number = arith::UIToFPOp::create(b, w.loc, b.getF64Type(), count);
    sum = arith::DivFOp::create(b, w.loc, sum, number);
  }
  Type compute = program.getVariant().getCompute();
  if (combine.getTemp() && !compute.isF64())
    sum = arith::TruncFOp::create(b, w.loc, compute, sum);
  return sum;
}

/// Writes element `index` (a word) of the temp, or the slot.
void FinishEmitter::storeResult(CombineOp combine, Value sum, Value count,
                                Value index) {
  Value result = emitResult(combine, sum, count);
  Value address =
      combine.getTemp() ? row.getBuffer(*combine.getTemp()) : row.tensorSlots;
  if (combine.getSlot())
    index = w.constantWord(*combine.getSlot());
  w.store(result, w.view(address, result.getType()), w.toIndex(index));
}

void FinishEmitter::combineColumns(CombineOp combine) {
  Value partial = row.getBuffer(combine.getPartial());
  Value zero = w.constant(0);
  w.loop(zero, w.toIndex(row.B), 1, [&](Value item) {
    Value number = w.toWord(item);
    Value first = getWord(partial, w.mul(w.mul(number, row.rowBlocks), row.M));
    emitPairwise(w, combine.getCombiner(), first, w.toIndex(row.rowBlocks),
                 row.M, w.toIndex(row.M));
    Value sums = w.view(first, b.getF64Type());
    Value base = w.mul(number, row.M);
    w.loop(zero, w.toIndex(row.M), 1, [&](Value column) {
      storeResult(combine, w.load(sums, column), row.N,
                  w.add(base, w.toWord(column)));
    });
  });
}

/// First the leaves of each row, then the rows of each item, then the items; as
/// far as the level goes.
void FinishEmitter::combineRows(CombineOp combine, const Extents &in) {
  Combiner combiner = combine.getCombiner();
  Level level = combine.getLevel();
  Value partial = row.getBuffer(combine.getPartial());
  Value zero = w.constant(0);
  w.loop(zero, w.toIndex(in.items), 1, [&](Value item) {
    Value firstRow = w.mul(w.toWord(item), in.rows);
    w.loop(zero, w.toIndex(in.rows), 1, [&](Value inner) {
      Value number = w.add(firstRow, w.toWord(inner));
      Value leaves = getWord(partial, w.mul(number, in.leaves));
      emitDense(w, combiner, leaves, w.toIndex(in.leaves));
      if (level == Level::Rows)
        storeResult(combine, loadAt(leaves), in.columns, number);
    });
    if (level == Level::Rows)
      return;
    Value first = getWord(partial, w.mul(firstRow, in.leaves));
    emitSequence(w, combiner, first, w.toIndex(in.rows), in.leaves);
    if (level == Level::Items)
      storeResult(combine, loadAt(first), w.mul(in.rows, in.columns),
                  w.toWord(item));
  });
  if (level != Level::Tensor)
    return;
  emitSequence(w, combiner, partial, w.toIndex(in.items),
               w.mul(in.rows, in.leaves));
  storeResult(combine, loadAt(partial),
              w.mul(in.items, w.mul(in.rows, in.columns)), w.constantWord(0));
}

/// Of no elements: every result is the neutral value, or 0 divided by 0.
void FinishEmitter::emitEmpty(CombineOp combine, const Extents &in) {
  Value count = w.constantWord(1);
  switch (combine.getLevel()) {
  case Level::Rows:
    count = w.mul(in.items, in.rows);
    break;
  case Level::Columns:
    count = w.mul(in.items, in.columns);
    break;
  case Level::Items:
    count = in.items;
    break;
  case Level::Tensor:
    break;
  }
  w.loop(w.constant(0), w.toIndex(count), 1, [&](Value index) {
    storeResult(combine, emitNeutral(w, combine.getCombiner(), 0),
                w.constantWord(0), w.toWord(index));
  });
}

void FinishEmitter::emitCombine(CombineOp combine) {
  Extents in = getExtents(combine.getSpace());
  Value elements = w.mul(in.items, w.mul(in.rows, in.columns));
  Value some = arith::CmpIOp::create(b, w.loc, arith::CmpIPredicate::ne,
                                     elements, w.constantWord(0));
  auto branch = scf::IfOp::create(b, w.loc, some, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  if (combine.getLevel() == Level::Columns)
    combineColumns(combine);
  else
    combineRows(combine, in);
  b.setInsertionPointToStart(branch.elseBlock());
  emitEmpty(combine, in);
}

/// A phase of vectors: one call for each item.
void FinishEmitter::emitVectors(PhaseOp phase, func::FuncOp run) {
  Extents in = getExtents(phase.getSpace());
  w.loop(w.constant(0), w.toIndex(in.items), 1, [&](Value item) {
    Value number = w.toWord(item);
    TileRunArguments arguments;
    arguments.scalars = row.scalars;
    arguments.tensorSlots = row.tensorSlots;
    for (auto operand : phase.getOperands().getAsRange<OperandAttr>()) {
      Value element = getAccess(phase, operand) == Access::Tile
                          ? w.mul(number, in.columns)
                          : number;
      Value size = w.constantWord(getElementBytes(operand));
      arguments.operands.push_back(
          w.add(row.getAddress(operand), w.mul(element, size)));
    }
    for (auto accumulator :
         phase.getAccumulators().getAsRange<AccumulatorAttr>())
      arguments.accumulators.push_back(getWord(
          row.getBuffer(accumulator.getPartial()), w.mul(number, in.leaves)));
    arguments.pitch = in.columns;
    arguments.leaves = in.leaves;
    arguments.rows = w.constant(1);
    arguments.cols = w.toIndex(in.columns);
    func::CallOp::create(b, w.loc, run, arguments.getValues());
  });
}

void FinishEmitter::emitScalars(TensorScalarsOp scalars) {
  Type f64 = b.getF64Type();
  Value shared = w.view(row.scalars, f64), own = w.view(row.tensorSlots, f64);
  Block &body = scalars.getBody().front();
  IRMapping mapping;
  int64_t numSlots = scalars.getNumSlots();
  for (BlockArgument argument : body.getArguments()) {
    if (argument.use_empty())
      continue;
    int64_t slot = argument.getArgNumber();
    mapping.map(argument, slot < numSlots ? w.load(shared, slot)
                                          : w.load(own, slot - numSlots));
  }
  for (Operation &op : body.without_terminator())
    b.clone(op, mapping);
  for (auto [slot, value] :
       llvm::zip(scalars.getWrites(), body.getTerminator()->getOperands()))
    w.store(mapping.lookup(value), own, w.constant(slot));
}

void mlir::step::emitFinish(OpBuilder &builder, ProgramOp program,
                            StringRef name, ArrayRef<Operation *> entries) {
  Location loc = program.getLoc();
  // Their functions first: one does not stand inside the other.
  DenseMap<Operation *, func::FuncOp> runs;
  for (Operation *entry : entries)
    if (auto phase = dyn_cast<PhaseOp>(entry))
      runs[phase] =
          emitTileRun(builder, phase, (phase.getSymName() + "_run").str(),
                      /*prefetchLines=*/0);
  Type i64 = builder.getI64Type();
  auto function = func::FuncOp::create(builder, loc, name,
                                       builder.getFunctionType({i64, i64}, {}));
  OpBuilder::InsertionGuard guard(builder);
  Block *block = function.addEntryBlock();
  builder.setInsertionPointToStart(block);
  Words w(builder, loc);
  TileRow row(w, program, block->getArgument(0), block->getArgument(1));
  FinishEmitter emitter(builder, program, row, w);
  for (Operation *entry : entries) {
    if (auto combine = dyn_cast<CombineOp>(entry))
      emitter.emitCombine(combine);
    else if (auto phase = dyn_cast<PhaseOp>(entry))
      emitter.emitVectors(phase, runs.lookup(phase));
    else
      emitter.emitScalars(cast<TensorScalarsOp>(entry));
  }
  func::ReturnOp::create(builder, loc);
}
