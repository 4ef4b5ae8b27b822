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
  for (auto [value, index] : llvm::zip(rule.getReturn().getValues(),
                                       rule.getReturnedArguments())) {
    if (value.getDefiningOp<StoredOp>() ||
        value == rule.getBody().getArgument(index))
      continue;
    return rule.getReturn().emitOpError()
           << "stores a value for '" << rule.getRole(index).getDisplayName()
           << "' that is not marked by 'step.stored'";
  }
  return success();
}

namespace {
struct VerifyDefined : step::impl::VerifyDefinedBase<VerifyDefined> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (failed(verifyRule(rule)))
        return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
