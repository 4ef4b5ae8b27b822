//===- VerifyBound.cpp - step-verify-bound --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

namespace mlir::step {
#define GEN_PASS_DEF_VERIFYBOUND
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

static LogicalResult verifyRoles(RuleOp rule) {
  if (!rule.isBound())
    return rule.emitOpError("is not bound after the bind stage");
  Type compute = rule.getVariantAttr().getCompute();
  for (auto role : rule.getRoles().getAsRange<RoleAttr>()) {
    if (!role.isTensor())
      continue;
    if (!role.getStorage())
      return rule.emitOpError()
             << "has no storage type for '" << role.getDisplayName() << "'";
    if (role.getStorage().getIntOrFloatBitWidth() >
        compute.getIntOrFloatBitWidth())
      return rule.emitOpError()
             << "stores '" << role.getDisplayName() << "' as "
             << role.getStorage() << ", wider than the compute type " << compute;
    if (role.getGuarded())
      return rule.emitOpError() << "still guards state '" << role.getDisplayName()
                                << "' after the bind stage";
  }
  return success();
}

static LogicalResult verifyBody(RuleOp rule) {
  for (Operation &op : rule.getBody().front()) {
    if (isa<StoredOp>(op))
      return op.emitOpError("is left after the bind stage");
    for (Value operand : op.getOperands())
      if (operand.getDefiningOp<OptionOp>())
        return op.emitOpError("uses an option after the bind stage");
  }
  return success();
}

namespace {
struct VerifyBound : step::impl::VerifyBoundBase<VerifyBound> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (failed(verifyRoles(rule)) || failed(verifyBody(rule)))
        return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
