//===- Schedule.cpp - the entries of a program's schedule -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Schedule.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::step;

bool mlir::step::isTensorScalar(Operation *op) {
  return !isa<arith::ConstantOp>(op) &&
         (isa_and_nonnull<arith::ArithDialect, math::MathDialect>(
              op->getDialect()) ||
          isa<PowiOp>(op) || op->hasTrait<ExpandedInBodies>());
}

/// Whether something is to be done: the others say something of values.
static bool isRun(Operation *op) {
  return isa<TraverseOp, CombineOp, ReceiveOp, ProgramMatrixOpInterface, OwnOp,
             ExtentOp, CarryOp>(op) ||
         isTensorScalar(op);
}

/// A traversal of the elements of matrices, rows side by side in every operand,
/// without sums: no element has to do with another one. That of a vector has
/// too few for more than a block, and there may be as many tensors as blocks.
static bool isSpread(Operation *op) {
  auto traverse = dyn_cast<TraverseOp>(op);
  if (!traverse)
    return isa<ProgramMatrixOpInterface>(op);
  ArrayRef<StringAttr> over = getDims(traverse.getOver());
  auto isOfItems = [&](Type type) {
    ArrayRef<StringAttr> own = getDims(type);
    return own.size() == over.size() && own.drop_back() == over.drop_back() &&
           (own.back() == over.back() || own.back().getValue() == "1");
  };
  auto isWide = [](StringAttr dim) {
    return dim.getValue() != "1" && !isBatch(dim);
  };
  return llvm::count_if(over, isWide) > 1 && traverse.getPartials().empty() &&
         llvm::all_of(traverse.getReads().getTypes(), isOfItems) &&
         llvm::all_of(traverse.getWrites().getTypes(), isOfItems) &&
         llvm::all_of(traverse.getResultTypes(), isOfItems);
}

std::vector<FinishStage> mlir::step::getStages(const ScheduleEntry &finish) {
  std::vector<FinishStage> stages;
  auto add = [&](FinishStage::Kind kind, Operation *op) {
    stages.push_back({kind, {op}, ""});
  };
  for (Operation *op : finish.finish) {
    if (isa<RoutineOpInterface>(op)) {
      add(FinishStage::Hand, op);
      add(FinishStage::Call, op);
      add(FinishStage::Take, op);
    } else if (isSpread(op)) {
      add(FinishStage::Spread, op);
    } else if (!stages.empty() && stages.back().kind == FinishStage::Rows) {
      stages.back().entries.push_back(op);
    } else {
      add(FinishStage::Rows, op);
    }
  }
  for (auto [number, stage] : llvm::enumerate(stages))
    if (stage.kind != FinishStage::Call)
      stage.name = number == 0 ? finish.name
                               : (finish.name + "_stage" + Twine(number)).str();
  return stages;
}

std::vector<ScheduleEntry> mlir::step::getSchedule(ProgramOp program) {
  std::vector<ScheduleEntry> entries;
  int64_t numFinishes = 0, segment = 0;
  for (Operation &op : program.getBody().front()) {
    segment += isa<ExchangeOp>(op);
    if (!isRun(&op))
      continue;
    auto traverse = dyn_cast<TraverseOp>(op);
    if (traverse && traverse.isKernel()) {
      if (traverse.getTrailing() && !entries.empty() && !entries.back().kernel)
        entries.back().isTrailing = true;
      entries.push_back({segment,
                         traverse.getSymName().str(),
                         traverse,
                         {},
                         traverse.getTrailing()});
      continue;
    }
    if (entries.empty() || entries.back().kernel ||
        entries.back().segment != segment)
      entries.push_back(
          {segment,
           (program.getKernelPrefix() + "_finish" + Twine(numFinishes++)).str(),
           TraverseOp(),
           {},
           false});
    entries.back().finish.push_back(&op);
  }
  return entries;
}
