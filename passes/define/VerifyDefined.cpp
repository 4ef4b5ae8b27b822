//===- VerifyDefined.cpp - step-verify-defined ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

namespace mlir::step {
#define GEN_PASS_DEF_VERIFYDEFINED
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

static LogicalResult verifyRule(RuleOp rule) {
  if (rule.isBound())
    return rule.emitOpError("is bound before the bind stage");
  for (Operation &op : rule.getBody().front()) {
    if (!isSourceOp(&op))
      return op.emitOpError("is no operation of a source definition");
    auto reduction = dyn_cast<ReductionOpInterface>(op);
    if (isa<CallOp, RepeatOp, WhenOp, IdentityOp>(op) ||
        (reduction && reduction.getReassociable()))
      return op.emitOpError("is left after 'step-inline-calls', "
                            "'step-unroll-repeats', 'step-flatten-whens', "
                            "'step-expand-identities' and "
                            "'step-reassociate-means'");
  }
  for (auto [value, index] :
       llvm::zip(rule.getReturn().getValues(), rule.getReturnedArguments())) {
    auto stored = value.getDefiningOp<StoredOp>();
    if ((stored && llvm::is_contained(stored.getRoles(), index)) ||
        value == rule.getBody().getArgument(index))
      continue;
    return rule.getReturn().emitOpError()
           << "stores a value for '" << rule.getRole(index).getDisplayName()
           << "' that is not marked by 'step.stored'";
  }
  return success();
}

/// A value is rounded for the roles that it is returned for, and for no other.
static LogicalResult verifyMarks(RuleOp rule) {
  SmallVector<unsigned> returned = rule.getReturnedArguments();
  WalkResult result = rule.walk([&](StoredOp stored) -> WalkResult {
    for (int64_t role : stored.getRoles()) {
      const auto *position = llvm::find(returned, role);
      Value value = rule.getReturn().getValues()[position - returned.begin()];
      if (value != stored.getResult())
        return stored.emitOpError()
               << "is marked for '" << rule.getRole(role).getDisplayName()
               << "', for which the rule returns another value";
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

namespace {
struct VerifyDefined : step::impl::VerifyDefinedBase<VerifyDefined> {
  void runOnOperation() override {
    for (auto program : getOperation().getBody().getOps<ProgramOp>()) {
      program.emitOpError("is scheduled before the bind stage");
      return signalPassFailure();
    }
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (failed(verifyRule(rule)) || failed(verifyMarks(rule)))
        return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
