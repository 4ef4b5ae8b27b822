//===- SkipReductions.cpp - step-skip-reductions -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "dialect/Sources.h"
#include "passes/bind/UnlessFlags.h"

#include "llvm/ADT/DenseSet.h"

namespace mlir::step {
#define GEN_PASS_DEF_SKIPREDUCTIONS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

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
  Unneeded unneeded = getUnneeded(reduction->getResult(0), getOtherSide);
  if (unneeded.flag && isKnownBefore(rule, unneeded.flag, reduction))
    reduction.setUnless(makeUnless(unneeded, reduction));
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
