//===- FormPrograms.cpp - step-form-programs ------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/bind/BoundRule.h"
#include "passes/schedule/ProgramBuilder.h"
#include "passes/schedule/RulePlan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::step {
#define GEN_PASS_DEF_FORMPROGRAMS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

static LogicalResult formProgram(RuleOp rule, Rounds &rounds) {
  RulePlan plan(rule, rounds);
  if (failed(verifyBoundRule(rule)) || failed(plan.run()))
    return failure();
  ProgramBuilder(rule, rounds, plan.analysis, plan.traversals, plan.finish)
      .build();
  return success();
}

namespace {
struct FormPrograms : step::impl::FormProgramsBase<FormPrograms> {
  void runOnOperation() override {
    SmallVector<RuleOp> rules(getOperation().getBody().getOps<RuleOp>());
    // Of all rules together, so before the first is gone.
    Rounds rounds(getOperation());
    for (RuleOp rule : rules)
      if (failed(formProgram(rule, rounds)))
        return signalPassFailure();
    for (RuleOp rule : rules)
      rule.erase();
    for (ScalarsOp op : rounds.getScalarsOps())
      op.setRound(rounds.getRound(op));
  }
};
} // namespace
