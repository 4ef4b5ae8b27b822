//===- SkipReductions.cpp - step-skip-reductions -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "passes/Sources.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseSet.h"

namespace mlir::step {
#define GEN_PASS_DEF_SKIPREDUCTIONS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
/// When a result is not used: where the flag is `holds`.
struct Unused {
  Value flag;
  bool holds = false;
};
} // namespace

/// The flag of the selects that alone use the result, all on the same side;
/// null where there is none.
static Unused findUnused(Value result) {
  Unused unused;
  for (OpOperand &use : result.getUses()) {
    auto select = dyn_cast<SelectOp>(use.getOwner());
    if (!select || !select.getCondition().getType().isInteger(1) ||
        select.getTrueValue() == select.getFalseValue())
      return {};
    bool holds = select.getFalseValue() == result;
    if (unused.flag &&
        (unused.flag != select.getCondition() || unused.holds != holds))
      return {};
    unused = {select.getCondition(), holds};
  }
  return unused;
}

/// Adds what a value has to wait for: reductions of tensors of the param's
/// dims and products, of which each may end a traversal, and rounds.
static void collectWaits(RuleOp rule, Value value,
                         DenseSet<Operation *> &found) {
  Type full = rule.getArgumentOfKind(RoleKind::Param).getType();
  auto enter = [&](Value next) {
    if (auto scalars = next.getDefiningOp<ScalarsOp>())
      found.insert(scalars);
    return next.getParentBlock() == &rule.getBody().front() ? Follow::Operands
                                                            : Follow::Nothing;
  };
  walkSources(value, enter, [&](Operation *op) {
    auto reduction = dyn_cast<ReductionOpInterface>(op);
    if (isMatrixOp(op) || (reduction && reduction.getInput().getType() == full))
      found.insert(op);
  });
}

/// Whether the flag is known as soon as the input is.
static bool isKnownBefore(RuleOp rule, Value flag,
                          ReductionOpInterface reduction) {
  DenseSet<Operation *> before, needed;
  for (Value input : reduction.getInputs())
    collectWaits(rule, input, before);
  collectWaits(rule, flag, needed);
  return llvm::all_of(needed,
                      [&](Operation *op) { return before.contains(op); });
}

static void skip(RuleOp rule, ReductionOpInterface reduction) {
  // That of a vector takes no traversal of the tensor.
  Type full = rule.getArgumentOfKind(RoleKind::Param).getType();
  if (!reduction.isWhole() || reduction.getUnless() ||
      reduction.getInput().getType() != full)
    return;
  Unused unused = findUnused(reduction->getResult(0));
  if (!unused.flag || unused.flag.getDefiningOp<ConstantOp>() ||
      !isKnownBefore(rule, unused.flag, reduction))
    return;
  moveSourcesBefore(unused.flag, reduction);
  OpBuilder builder(reduction);
  Value flag = unused.flag;
  if (!unused.holds)
    flag = NotOp::create(builder, reduction->getLoc(), flag);
  reduction.setUnless(flag);
}

namespace {
struct SkipReductions : step::impl::SkipReductionsBase<SkipReductions> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>()) {
      if (!rule.isBound())
        continue;
      SmallVector<ReductionOpInterface> reductions(
          rule.getBody().front().getOps<ReductionOpInterface>());
      for (ReductionOpInterface reduction : reductions)
        skip(rule, reduction);
    }
  }
};
} // namespace
