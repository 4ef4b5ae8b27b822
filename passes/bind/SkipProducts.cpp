//===- SkipProducts.cpp - step-skip-products ------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "passes/Sources.h"

#include "mlir/IR/Builders.h"

namespace mlir::step {
#define GEN_PASS_DEF_SKIPPRODUCTS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
/// When nobody needs a value: where the flag is `holds`.
struct Unneeded {
  Value flag;
  bool holds = false;

  bool operator==(const Unneeded &other) const {
    return flag == other.flag && holds == other.holds;
  }
};

/// Finds, from a rule's last operation to its first, when each value is not
/// needed. Invariant: `found` has the values of all operations behind the one
/// at hand that are not needed under some flag; others always are.
class Needs {
public:
  explicit Needs(RuleOp rule);

  /// Null where it is always needed.
  Unneeded lookup(Value value) const { return found.lookup(value); }

private:
  Unneeded getUnneeded(OpOperand &use) const;

  DenseMap<Value, Unneeded> found;
};
} // namespace

/// When this use does not need the value: where a select takes the other one,
/// or where nobody needs what is made of it.
Unneeded Needs::getUnneeded(OpOperand &use) const {
  Operation *user = use.getOwner();
  auto select = dyn_cast<SelectOp>(user);
  if (select && use.getOperandNumber() > 0 &&
      select.getTrueValue() != select.getFalseValue() &&
      isKnownBeforeStep(select.getCondition()) &&
      !select.getCondition().getDefiningOp<ConstantOp>())
    return {select.getCondition(), use.getOperandNumber() == 2};
  if (!isValueOp(user))
    return {};
  return found.lookup(user->getResult(0));
}

Needs::Needs(RuleOp rule) {
  for (Operation &op :
       llvm::reverse(rule.getBody().front().without_terminator())) {
    if (op.getNumResults() != 1 || op.use_empty())
      continue;
    std::optional<Unneeded> all;
    for (OpOperand &use : op.getUses()) {
      Unneeded one = getUnneeded(use);
      if (!one.flag || (all && !(*all == one))) {
        all.reset();
        break;
      }
      all = one;
    }
    if (all)
      found[op.getResult(0)] = *all;
  }
}

static void skip(RuleOp rule) {
  Needs needs(rule);
  // For each flag and side the one that says when something is left out.
  SmallVector<std::pair<Unneeded, Value>> flags;
  for (auto op : llvm::make_early_inc_range(
           rule.getBody().front().getOps<MatrixOpInterface>())) {
    Unneeded unneeded = needs.lookup(op->getResult(0));
    if (!unneeded.flag || op.getUnless())
      continue;
    auto known = llvm::find_if(
        flags, [&](const auto &one) { return one.first == unneeded; });
    if (known != flags.end()) {
      op.setUnless(known->second);
      continue;
    }
    moveSourcesBefore(unneeded.flag, op);
    OpBuilder builder(op);
    Value flag = unneeded.flag;
    if (!unneeded.holds)
      flag = NotOp::create(builder, op->getLoc(), flag);
    op.setUnless(flag);
    flags.push_back({unneeded, flag});
  }
}

namespace {
struct SkipProducts : step::impl::SkipProductsBase<SkipProducts> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (rule.isBound())
        skip(rule);
  }
};
} // namespace
