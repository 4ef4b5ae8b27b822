//===- SkipProducts.cpp - step-skip-products ------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "passes/bind/UnlessFlags.h"

namespace mlir::step {
#define GEN_PASS_DEF_SKIPPRODUCTS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
/// Finds, from a rule's last operation to its first, when each value is not
/// needed. Invariant: `found` has the values of all operations behind the one
/// at hand that are not needed under some flag; others always are.
class Needs {
public:
  explicit Needs(RuleOp rule);

  /// Null where it is always needed.
  Unneeded lookup(Value value) const { return found.lookup(value); }

private:
  Unneeded ofUse(OpOperand &use) const;

  DenseMap<Value, Unneeded> found;
};
} // namespace

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
    Value flag = makeUnless(unneeded, op);
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
