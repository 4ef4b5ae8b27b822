//===- VerifyScheduled.cpp - step-verify-scheduled ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::step {
#define GEN_PASS_DEF_VERIFYSCHEDULED
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// Each operand that the program writes is written by exactly one phase.
static LogicalResult verifyWrites(ProgramOp program) {
  for (auto operand : program.getOperands().getAsRange<OperandAttr>()) {
    int64_t writers = 0;
    for (auto phase : program.getBody().getOps<PhaseOp>())
      writers += llvm::count_if(phase.getOperands().getAsRange<OperandAttr>(),
                                [&](OperandAttr other) {
                                  return other.getWrites() &&
                                         other.getKind() == operand.getKind() &&
                                         other.getName() == operand.getName();
                                });
    if (writers != int64_t(operand.getWrites()))
      return program.emitOpError()
             << "has " << writers << " phases that write '"
             << operand.getName().getValue() << "', instead of "
             << int64_t(operand.getWrites());
  }
  return success();
}

static LogicalResult verifyNoFastMath(ProgramOp program) {
  WalkResult result =
      program.walk([](arith::ArithFastMathInterface op) -> WalkResult {
        auto flags = op.getFastMathFlagsAttr();
        if (!flags || flags.getValue() == arith::FastMathFlags::none)
          return WalkResult::advance();
        return op->emitOpError("has fast-math flags, which change values");
      });
  return failure(result.wasInterrupted());
}

namespace {
struct VerifyScheduled : step::impl::VerifyScheduledBase<VerifyScheduled> {
  void runOnOperation() override {
    for (Operation &op : getOperation().getBody().front()) {
      if (isa<HyperOp, OptionOp, ConstantOp, ScalarOp, StatisticOp, ScalarsOp>(
              op))
        continue;
      auto program = dyn_cast<ProgramOp>(op);
      if (!program) {
        op.emitOpError("is left after the schedule stage");
        return signalPassFailure();
      }
      if (failed(verifyWrites(program)) || failed(verifyNoFastMath(program)))
        return signalPassFailure();
    }
    markAllAnalysesPreserved();
  }
};
} // namespace
