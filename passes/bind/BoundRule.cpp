//===- BoundRule.cpp - what holds of a rule after the bind stage --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/bind/BoundRule.h"

using namespace mlir;
using namespace mlir::step;

/// That every tensor of a bound rule has a storage type is the rule's
/// verifier's.
static LogicalResult verifyRoles(RuleOp rule) {
  if (!rule.isBound())
    return rule.emitOpError("is not bound");
  Type compute = rule.getVariantAttr().getCompute();
  for (auto role : rule.getRoles().getAsRange<RoleAttr>()) {
    if (!role.isTensor() || role.getKind() == RoleKind::Position)
      continue;
    if (role.getStorage().getIntOrFloatBitWidth() >
        compute.getIntOrFloatBitWidth())
      return rule.emitOpError() << "stores '" << role.getDisplayName()
                                << "' as " << role.getStorage()
                                << ", wider than the compute type " << compute;
    if (role.getGuarded())
      return rule.emitOpError() << "still guards state '"
                                << role.getDisplayName() << "' when bound";
  }
  return success();
}

/// What is stored as an integer is one: a lower half.
static LogicalResult verifyIntegers(RuleOp rule) {
  for (auto [value, index] :
       llvm::zip(rule.getReturn().getValues(), rule.getReturnedArguments()))
    if (rule.getRole(index).getStorage().isInteger() &&
        !value.getDefiningOp<LowerHalfOp>())
      return rule.emitOpError()
             << "stores '" << rule.getRole(index).getDisplayName() << "' as "
             << rule.getRole(index).getStorage()
             << ", and returns no lower half for it";
  return success();
}

static LogicalResult verifyBody(RuleOp rule) {
  for (Operation &op : rule.getBody().front()) {
    if (isa<StoredOp, CallOp, RepeatOp, WhenOp, IdentityOp>(op))
      return op.emitOpError("is left in a bound rule");
    for (Value operand : op.getOperands())
      if (operand.getDefiningOp<OptionOp>())
        return op.emitOpError("uses an option in a bound rule");
  }
  return success();
}

LogicalResult mlir::step::verifyBoundRule(RuleOp rule) {
  return failure(failed(verifyRoles(rule)) || failed(verifyIntegers(rule)) ||
                 failed(verifyBody(rule)));
}

BlockArgument mlir::step::getOrAddArgument(RuleOp rule, RoleKind kind,
                                           Type type, Type storage) {
  if (BlockArgument known = rule.getArgumentOfKind(kind))
    return known;
  RoleAttr role = RoleAttr::get(rule.getContext(), kind);
  return rule.addArgument(storage ? role.withStorage(storage) : role, type);
}

BlockArgument mlir::step::getPosition(RuleOp rule) {
  Type param = rule.getArgumentOfKind(RoleKind::Param).getType();
  return getOrAddArgument(rule, RoleKind::Position, param,
                          IntegerType::get(rule.getContext(), 64));
}
