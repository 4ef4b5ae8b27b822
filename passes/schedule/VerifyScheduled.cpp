//===- VerifyScheduled.cpp - step-verify-scheduled ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/ParamDims.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::step {
#define GEN_PASS_DEF_VERIFYSCHEDULED
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// What lies in memory of the tensor's own, and nothing else, is used after a
/// round.
static LogicalResult verifyKept(ProgramOp program) {
  for (Operation &op : program.getBody().front())
    for (Value result : op.getResults()) {
      if (!isa<BufferType>(result.getType()) ||
          isa<BlockArgument>(getMemory(result)))
        continue;
      int64_t own = getSegment(&op);
      bool isUsed = llvm::any_of(op.getUsers(), [&](Operation *user) {
        return getSegment(user) > own;
      });
      if (isUsed && !isa<KeepOp>(op))
        return op.emitOpError("makes a buffer that is used after a round and "
                              "not kept");
      if (!isUsed && isa<KeepOp>(op))
        return op.emitOpError("keeps a buffer that no later segment uses");
    }
  return success();
}

/// Before a trailing traversal, since the kernel before it, stands only what
/// can be computed for some rows.
static LogicalResult verifyTrailing(ProgramOp program) {
  ParamDims dims = getParamDims(program);
  bool ofRows = false;
  for (Operation &op : program.getBody().front()) {
    auto traverse = dyn_cast<TraverseOp>(op);
    if (traverse && traverse.isKernel()) {
      if (traverse.getTrailing() && !ofRows)
        return traverse.emitOpError(
            "is trailing, but more than rows' own stands "
            "between it and the kernel before it");
      ofRows = !traverse.getUnless();
      continue;
    }
    if (traverse)
      ofRows &= dims.covers(traverse.getOver()) &&
                dims.getSet(traverse.getOver()) == dims.getRows() &&
                traverse.getPartials().empty();
    else if (auto combine = dyn_cast<CombineOp>(op))
      ofRows &= isa<BufferType>(combine.getResult().getType()) &&
                dims.isFull(combine.getPartial().getType().getShape()) &&
                dims.getSet(combine.getPartial().getType().getKeptShape()) ==
                    dims.getRows();
    else
      ofRows &= isa<KeepOp, arith::ConstantOp>(op);
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
      if (failed(verifyKept(program)) || failed(verifyTrailing(program)) ||
          failed(verifyNoFastMath(program)))
        return signalPassFailure();
    }
    markAllAnalysesPreserved();
  }
};
} // namespace
