//===- RulePlan.h - all that is planned of a rule ---------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SCHEDULE_RULEPLAN_H
#define STEPC_PASSES_SCHEDULE_RULEPLAN_H

#include "passes/schedule/FinishPlan.h"

#include "mlir/IR/AsmState.h"

namespace mlir::step {

/// The stages of scheduling a bound rule, each of which builds on those before:
/// when each value is known, which traversal does what, what a finish does.
/// step-form-programs emits what they say; a pass prints each of them.
struct RulePlan {
  RulePlan(RuleOp rule, Rounds &rounds)
      : analysis(rule, rounds), traversals(rule, analysis),
        finish(rule, analysis, traversals) {}

  /// Fails with a diagnostic where the rule cannot be compiled.
  LogicalResult run() {
    if (failed(analysis.run()))
      return failure();
    traversals.run();
    finish.run();
    return success();
  }

  RuleAnalysis analysis;
  TraversalPlan traversals;
  FinishPlan finish;
};

/// Plans each rule of the optimizer, and has it printed below its name.
LogicalResult printPlans(
    OptimizerOp optimizer,
    function_ref<void(const RulePlan &, raw_ostream &, AsmState &)> print);

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_RULEPLAN_H
