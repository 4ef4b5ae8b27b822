//===- RowBlock.cpp - several phases on a block of rows -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/RowBlock.h"

#include "passes/lower/cpu/WorkerPolicy.h"

using namespace mlir;
using namespace mlir::step;

Value mlir::step::emitGoesByRowBlocks(const Words &w, const TileRow &row) {
  return w.isEqual(row.tileColumns, w.constantWord(1));
}

/// The block's part of a vector of rows. Nothing is accumulated.
static void runRows(const Words &w, const TileRow &row, TraverseOp traverse,
                    func::FuncOp run, Value item, Value firstRow, Value rows) {
  DimSet outer = row.getDims().getOuter();
  TileRunArguments arguments;
  arguments.scalars = row.scalars;
  arguments.tensorSlots = row.tensorSlots;
  for (const Operand &operand : getOperands(traverse)) {
    DimSet own = getDimSet(traverse, operand);
    Value element = row.getExtents().project(item, outer, own & outer);
    if (getAccess(traverse, operand) == Access::Tile)
      element = w.add(w.mul(element, row.N), firstRow);
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
  auto runs = getVectorRuns(builder, storage, entries);
  Location loc = storage.getProgram()->getLoc();
  func::FuncOp function = makeInternalFunction(builder, loc, name, 5, 0);
  OpBuilder::InsertionGuard guard(builder);
  Block &block = function.getBody().front();
  builder.setInsertionPointToStart(&block);
  Words w(builder, loc);
  TileRow row(w, storage, CallWords::load(w, block.getArgument(0)),
              block.getArgument(1));
  WorkerPolicy policy(w);
  FinishEmitter finish(w, row, policy);
  Value item = block.getArgument(2), firstRow = block.getArgument(3),
        rows = block.getArgument(4);
  Value number = w.add(w.mul(item, row.N), firstRow);
  for (Operation *entry : entries) {
    auto combine = dyn_cast<CombineOp>(entry);
    if (!combine) {
      runRows(w, row, cast<TraverseOp>(entry), runs.lookup(entry), item,
              firstRow, rows);
      continue;
    }
    Value leaves = w.mul(w.mul(number, row.leaves), w.constantWord(8));
    finish.combineRows(getDestination(w, row, combine),
                       w.add(row.getAddress(combine.getPartial()), leaves),
                       number, rows);
  }
  func::ReturnOp::create(builder, loc);
  return function;
}
