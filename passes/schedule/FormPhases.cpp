//===- FormPhases.cpp - step-form-phases ----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In four steps, each a class of its own: where and when each value of the rule
// is (RuleAnalysis), which traversal does what (TraversalPlan), what is done
// between traversals (FinishPlan), and the program of these (ProgramBuilder).
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/bind/BoundRule.h"
#include "passes/schedule/ProgramBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::step {
#define GEN_PASS_DEF_FORMPHASES
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

static LogicalResult formPhases(RuleOp rule, Rounds &rounds) {
  RuleAnalysis analysis(rule, rounds);
  if (failed(analysis.run()))
    return failure();
  TraversalPlan traversals(rule, analysis);
  traversals.run();
  FinishPlan finish(rule, analysis, traversals);
  finish.run();
  ProgramBuilder(rule, rounds, analysis, traversals, finish).build();
  return success();
}

/// Elementwise programs are the same in every layout: one of them is enough.
static void dropTwins(OptimizerOp optimizer) {
  SmallVector<ProgramOp> kept;
  for (auto program :
       llvm::make_early_inc_range(optimizer.getBody().getOps<ProgramOp>())) {
    bool known = llvm::any_of(kept, [&](ProgramOp other) {
      return program.getElementwise() && other.getElementwise() &&
             other.getVariant() == program.getVariant() &&
             other.getRoles() == program.getRoles();
    });
    if (known)
      program.erase();
    else
      kept.push_back(program);
  }
}

/// Leaves out what is contributed to statistics that nothing reads, and what
/// only that needed.
static void dropUnreadContributions(RuleOp rule) {
  for (auto contribute : llvm::make_early_inc_range(
           rule.getBody().front().getOps<ContributeOp>())) {
    bool isRead =
        llvm::any_of(contribute.getStatistic().getUsers(),
                     [](Operation *user) { return !isa<ContributeOp>(user); });
    if (!isRead)
      contribute.erase();
  }
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(rule.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

namespace {
struct FormPhases : step::impl::FormPhasesBase<FormPhases> {
  void runOnOperation() override {
    SmallVector<RuleOp> rules(getOperation().getBody().getOps<RuleOp>());
    for (RuleOp rule : rules)
      dropUnreadContributions(rule);
    // Of all rules together, so before the first is gone.
    Rounds rounds(getOperation());
    for (RuleOp rule : rules)
      if (failed(verifyBoundRule(rule)) || failed(formPhases(rule, rounds)))
        return signalPassFailure();
    for (RuleOp rule : rules)
      rule.erase();
    dropTwins(getOperation());
    for (ScalarsOp op : rounds.getScalarsOps())
      op.setRound(rounds.getRound(op));
  }
};
} // namespace
