//===- RowBlock.cpp - several phases on a block of rows -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/RowBlock.h"

#include "passes/lower/FinishResults.h"
#include "passes/lower/cpu/ReductionTree.h"
#include "passes/lower/cpu/TileRun.h"

using namespace mlir;
using namespace mlir::step;

Value mlir::step::emitGoesByRowBlocks(const Words &w, const TileRow &row) {
  return arith::CmpIOp::create(w.b, w.loc, arith::CmpIPredicate::eq,
                               row.tileColumns, w.constantWord(1));
}

/// The leaves of each row of the block, as the finish of a tensor does.
static void combineRows(const Words &w, const TileRow &row, CombineOp combine,
                        Value firstRow, Value rows) {
  Destination to =
      getDestination(w, combine, getExtents(w, row, getSpace(combine)));
  Value partial = row.getAddress(combine.getPartial());
  w.loop(w.constant(0), w.toIndex(rows), 1, [&](Value index) {
    Value number = w.add(firstRow, w.toWord(index));
    Value leaves =
        w.add(partial, w.mul(w.mul(number, row.leaves), w.constantWord(8)));
    emitDense(w, to.combiner, leaves, w.toIndex(row.leaves));
    Value sum = w.load(w.view(leaves, w.b.getF64Type()), int64_t(0));
    storeResult(w, row, to, sum, number);
  });
}

/// The block's part of a vector of rows. Nothing is accumulated.
static void runRows(const Words &w, const TileRow &row, TraverseOp traverse,
                    func::FuncOp run, Value item, Value firstRow, Value rows) {
  TileRunArguments arguments;
  arguments.scalars = row.scalars;
  arguments.tensorSlots = row.tensorSlots;
  for (const Operand &operand : getOperands(traverse)) {
    Value element =
        getAccess(traverse, operand) == Access::Tile ? firstRow : item;
    Value size = w.constantWord(operand.getBytes());
    arguments.operands.push_back(
        w.add(row.getAddress(operand.buffer), w.mul(element, size)));
  }
  arguments.pitch = rows;
  arguments.leaves = w.constantWord(0);
  arguments.rows = w.constant(1);
  arguments.cols = w.toIndex(rows);
  func::CallOp::create(w.b, w.loc, run, arguments.getValues());
}

func::FuncOp mlir::step::emitRowBlockFinish(OpBuilder &builder,
                                            const ProgramStorage &storage,
                                            StringRef name,
                                            ArrayRef<Operation *> entries) {
  // Their functions first: one does not stand inside the other.
  DenseMap<Operation *, func::FuncOp> runs;
  for (Operation *entry : entries)
    if (auto traverse = dyn_cast<TraverseOp>(entry))
      runs[entry] = getTileRun(builder, traverse, storage, /*prefetchLines=*/0);
  Location loc = storage.getProgram()->getLoc();
  func::FuncOp function = makeInternalFunction(builder, loc, name, 5, 0);
  OpBuilder::InsertionGuard guard(builder);
  Block &block = function.getBody().front();
  builder.setInsertionPointToStart(&block);
  Words w(builder, loc);
  TileRow row(w, storage, CallWords::load(w, block.getArgument(0)),
              block.getArgument(1));
  Value item = block.getArgument(2), rows = block.getArgument(4);
  Value firstRow = w.add(w.mul(item, row.N), block.getArgument(3));
  for (Operation *entry : entries) {
    if (auto combine = dyn_cast<CombineOp>(entry))
      combineRows(w, row, combine, firstRow, rows);
    else
      runRows(w, row, cast<TraverseOp>(entry), runs.lookup(entry), item,
              firstRow, rows);
  }
  func::ReturnOp::create(builder, loc);
  return function;
}
