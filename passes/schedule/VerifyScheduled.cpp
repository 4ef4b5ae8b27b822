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

/// Before a trailing phase, since the phase of tiles before it, stands only
/// what can be computed for some rows.
static LogicalResult verifyTrailing(ProgramOp program) {
  bool ofRows = false;
  for (Operation &op : program.getBody().front()) {
    auto phase = dyn_cast<PhaseOp>(op);
    if (phase && phase.getSpace() == Space::Tiles) {
      if (phase.getTrailing() && !ofRows)
        return phase.emitOpError("is trailing, but more than rows' own stands "
                                 "between it and the phase of tiles before it");
      ofRows = !phase.getUnless();
      continue;
    }
    auto combine = dyn_cast<CombineOp>(op);
    ofRows &= combine ? combine.getSpace() == Space::Tiles &&
                            combine.getLevel() == Level::Rows &&
                            !combine.getExchange()
                      : phase && phase.getSpace() == Space::Rows &&
                            phase.getAccumulators().empty();
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
      if (failed(verifyWrites(program)) || failed(verifyTrailing(program)) ||
          failed(verifyNoFastMath(program)))
        return signalPassFailure();
    }
    markAllAnalysesPreserved();
  }
};
} // namespace
