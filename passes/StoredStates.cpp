//===- StoredStates.cpp - taking states out of a rule ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/StoredStates.h"

using namespace mlir;
using namespace mlir::step;

void mlir::step::dropStoredValues(RuleOp rule, ArrayRef<unsigned> absent) {
  ReturnOp ret = rule.getReturn();
  SmallVector<unsigned> returned = rule.getReturnedArguments();
  for (int64_t position = returned.size() - 1; position >= 0; --position)
    if (llvm::is_contained(absent, returned[position]))
      ret->eraseOperand(position);

  rule.walk([&](StoredOp stored) {
    SmallVector<int64_t> kept;
    for (int64_t role : stored.getRoles())
      if (!llvm::is_contained(absent, role))
        kept.push_back(role - llvm::count_if(absent, [&](unsigned index) {
                         return int64_t(index) < role;
                       }));
    if (!kept.empty()) {
      stored.setRoles(kept);
      return;
    }
    stored.getResult().replaceAllUsesWith(stored.getOperand());
    stored.erase();
  });
}

/// What is not there is never created.
static RoleAttr withoutStates(RoleAttr role, ArrayRef<Attribute> absent) {
  if (!role.getStates())
    return role;
  SmallVector<Attribute> kept(role.getStates().getValue());
  llvm::erase_if(
      kept, [&](Attribute name) { return llvm::is_contained(absent, name); });
  return role.withStates(ArrayAttr::get(role.getContext(), kept));
}

void mlir::step::eraseStates(RuleOp rule, ArrayRef<unsigned> absent) {
  SmallVector<Attribute> roles, names;
  SmallVector<Value> guards;
  for (unsigned index : absent)
    names.push_back(rule.getRole(index).getName());
  for (unsigned index = 0; index < rule.getRoles().size(); ++index) {
    if (llvm::is_contained(absent, index))
      continue;
    roles.push_back(withoutStates(rule.getRole(index), names));
    if (Value guard = rule.getGuard(index))
      guards.push_back(guard);
  }
  for (unsigned index : llvm::reverse(absent))
    rule.getBody().eraseArgument(index);
  rule.getGuardsMutable().assign(guards);
  rule.setRolesAttr(ArrayAttr::get(rule.getContext(), roles));
}
