//===- UnlessFlags.cpp - what is left out where nobody needs it -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/bind/UnlessFlags.h"

#include "dialect/Sources.h"

#include "mlir/IR/Builders.h"

#include <algorithm>
#include <optional>

using namespace mlir;
using namespace mlir::step;

Unneeded mlir::step::getOtherSide(OpOperand &use) {
  auto select = dyn_cast<SelectOp>(use.getOwner());
  if (!select || use.getOperandNumber() == 0 ||
      !select.getCondition().getType().isInteger(1) ||
      select.getCondition().getDefiningOp<ConstantOp>() ||
      select.getTrueValue() == select.getFalseValue())
    return {};
  return {select.getCondition(), use.get() == select.getFalseValue()};
}

Unneeded mlir::step::getUnneeded(Value value,
                                 function_ref<Unneeded(OpOperand &)> ofUse) {
  Unneeded all;
  for (OpOperand &use : value.getUses()) {
    Unneeded one = ofUse(use);
    if (!one.flag || (all.flag && !(all == one)))
      return {};
    all = one;
  }
  return all;
}

/// When this use does not need the value: where a select takes the other one,
/// or where nobody needs what is made of it.
Unneeded Needs::ofUse(OpOperand &use) const {
  Unneeded other = getOtherSide(use);
  if (other.flag && isKnownBeforeStep(other.flag))
    return other;
  if (!isValueOp(use.getOwner()))
    return {};
  return found.lookup(use.getOwner()->getResult(0));
}

Needs::Needs(RuleOp rule) {
  for (Operation &op :
       llvm::reverse(rule.getBody().front().without_terminator())) {
    if (op.getNumResults() != 1)
      continue;
    Unneeded all = getUnneeded(op.getResult(0),
                               [&](OpOperand &use) { return ofUse(use); });
    if (all.flag)
      found[op.getResult(0)] = all;
  }
}

namespace {
/// In one of how many steps a flag holds, and in one of how many it does not.
struct Periods {
  int64_t holds = 1, fails = 1;
};
} // namespace

static bool isFresh(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  auto rule = argument ? dyn_cast<RuleOp>(argument.getOwner()->getParentOp())
                       : RuleOp();
  return rule &&
         rule.getRole(argument.getArgNumber()).getKind() == RoleKind::Fresh;
}

/// The gap by its default. One that is computed counts as 1, so that what is
/// done at such times counts in full: better too much than nothing.
static int64_t getGap(EveryOp every) {
  std::optional<double> gap;
  if (auto hyper = every.getGap().getDefiningOp<HyperOp>())
    gap = hyper.getDefaultValue().convertToDouble();
  if (auto constant = every.getGap().getDefiningOp<ConstantOp>())
    if (auto number = dyn_cast<FloatAttr>(constant.getValue()))
      gap = number.getValueAsDouble();
  return gap && *gap >= 1 && *gap < 1e9 ? int64_t(*gap) : 1;
}

/// Of two that come at the same steps where they can, the one that comes more
/// often, and the one that comes less often.
static int64_t getOftener(int64_t left, int64_t right) {
  return left && right ? std::min(left, right) : std::max(left, right);
}
static int64_t getRarer(int64_t left, int64_t right) {
  return left && right ? std::max(left, right) : 0;
}

int64_t mlir::step::getPeriod(Value flag, bool value) {
  DenseMap<Value, Periods> found;
  auto enter = [&](Value next) {
    if (isFresh(next))
      found[next].holds = 0;
    if (auto option = next.getDefiningOp<OptionOp>())
      if (std::optional<bool> holds = option.getDefaultValue())
        (*holds ? found[next].fails : found[next].holds) = 0;
    return isa_and_nonnull<NotOp, AndOp, OrOp, EveryOp>(next.getDefiningOp())
               ? Follow::Operands
               : Follow::Nothing;
  };
  auto leave = [&](Operation *op) {
    Periods &own = found[op->getResult(0)];
    if (auto every = dyn_cast<EveryOp>(op)) {
      own.holds = getGap(every);
      return;
    }
    Periods left = found.lookup(op->getOperand(0));
    if (isa<NotOp>(op)) {
      found[op->getResult(0)] = {left.fails, left.holds};
      return;
    }
    Periods right = found.lookup(op->getOperand(1));
    Periods both = {getRarer(left.holds, right.holds),
                    getOftener(left.fails, right.fails)};
    Periods either = {getOftener(left.holds, right.holds),
                      getRarer(left.fails, right.fails)};
    found[op->getResult(0)] = isa<AndOp>(op) ? both : either;
  };
  walkSources(flag, enter, leave);
  Periods periods = found.lookup(flag);
  return value ? periods.holds : periods.fails;
}

Value mlir::step::makeUnless(const Unneeded &unneeded, Operation *op) {
  moveSourcesBefore(unneeded.flag, op);
  if (unneeded.holds)
    return unneeded.flag;
  OpBuilder builder(op);
  return NotOp::create(builder, op->getLoc(), unneeded.flag);
}
