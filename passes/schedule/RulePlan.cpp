//===- RulePlan.cpp - all that is planned of a rule -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/RulePlan.h"

#include "passes/bind/BoundRule.h"

using namespace mlir;
using namespace mlir::step;

LogicalResult mlir::step::printPlans(
    OptimizerOp optimizer,
    function_ref<void(const RulePlan &, raw_ostream &, AsmState &)> print) {
  Rounds rounds(optimizer);
  // Values are called as in a dump of the module.
  Operation *top = optimizer;
  while (Operation *parent = top->getParentOp())
    top = parent;
  AsmState state(top);
  for (auto rule : optimizer.getBody().getOps<RuleOp>()) {
    RulePlan plan(rule, rounds);
    if (failed(verifyBoundRule(rule)) || failed(plan.run()))
      return failure();
    llvm::outs() << rule.getSymName() << "\n";
    print(plan, llvm::outs(), state);
  }
  return success();
}
