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
