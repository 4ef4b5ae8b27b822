//===- DropDeadStates.cpp - step-drop-dead-states -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/StoredStates.h"

#include "llvm/ADT/SetVector.h"

namespace mlir::step {
#define GEN_PASS_DEF_DROPDEADSTATES
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
/// What the param, the kept states and the contributions of a rule depend on,
/// step after step.
class Liveness {
public:
  explicit Liveness(RuleOp rule);

  bool isLive(unsigned argument) const { return live.contains(argument); }

private:
  /// `argument` is needed in the next step, and so is what is returned for it.
  void need(unsigned argument);
  /// Whether they are fresh is known only of states that there are.
  void needStatesOf(BlockArgument fresh);

  RuleOp rule;
  SmallVector<Value> worklist;
  DenseSet<Value> seen;
  llvm::SmallSetVector<unsigned, 8> live;
};
} // namespace

void Liveness::need(unsigned argument) {
  if (!live.insert(argument))
    return;
  for (auto [value, index] :
       llvm::zip(rule.getReturn().getValues(), rule.getReturnedArguments()))
    if (index == argument)
      worklist.push_back(value);
}

void Liveness::needStatesOf(BlockArgument fresh) {
  ArrayAttr named = rule.getRole(fresh.getArgNumber()).getStates();
  for (unsigned index : rule.getReturnedArguments())
    if (rule.getRole(index).getKind() == RoleKind::State &&
        (!named || llvm::is_contained(named, rule.getRole(index).getName())))
      need(index);
}

Liveness::Liveness(RuleOp rule) : rule(rule) {
  for (unsigned index : rule.getReturnedArguments())
    if (rule.getRole(index).getKind() == RoleKind::Param ||
        rule.getRole(index).getKept())
      need(index);
  for (auto contribute : rule.getBody().getOps<ContributeOp>())
    worklist.push_back(contribute.getValue());
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      RoleAttr role = rule.getRole(argument.getArgNumber());
      if (role.isReturned())
        need(argument.getArgNumber());
      else if (role.getKind() == RoleKind::Fresh)
        needStatesOf(argument);
      continue;
    }
    Operation *op = value.getDefiningOp();
    if (op->getParentOp() != rule)
      continue;
    // Its storage type is what the value is rounded to.
    if (auto stored = dyn_cast<StoredOp>(op))
      for (int64_t role : stored.getRoles())
        need(role);
    llvm::append_range(worklist, op->getOperands());
  }
}

/// Leaves out the operations whose results nothing needs any more.
static void dropUnused(RuleOp rule) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(rule.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

static void dropDeadStates(RuleOp rule) {
  Liveness liveness(rule);
  SmallVector<unsigned> dead;
  SmallVector<Attribute> names;
  for (unsigned index : rule.getReturnedArguments()) {
    if (liveness.isLive(index))
      continue;
    dead.push_back(index);
    names.push_back(rule.getRole(index).getName());
    emitRemark(rule.getBody().getArgument(index).getLoc())
        << "state '" << rule.getRole(index).getDisplayName()
        << "' is never used, it is dropped";
  }
  if (dead.empty())
    return;
  dropStoredValues(rule, dead);
  dropUnused(rule);
  eraseStates(rule, dead);
  rule->setAttr(kDroppedStates, ArrayAttr::get(rule.getContext(), names));
}

namespace {
struct DropDeadStates : step::impl::DropDeadStatesBase<DropDeadStates> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (!rule.isBound())
        dropDeadStates(rule);
  }
};
} // namespace
