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

using Transfers = std::vector<OwningOpRef<Operation *>>;

/// Takes out of the rule what stands around its step: what is between uses the
/// argument, and returns what it has computed.
static Transfers takeTransfers(RuleOp rule) {
  Transfers taken;
  for (auto op : llvm::make_early_inc_range(
           rule.getBody().front().getOps<TransferOpInterface>())) {
    op->getResult(0).replaceAllUsesWith(op->getOperand(0));
    op->remove();
    op->dropAllReferences();
    taken.emplace_back(op.getOperation());
  }
  return taken;
}

static LogicalResult formProgram(RuleOp rule, const Transfers &transfers,
                                 Rounds &rounds) {
  RulePlan plan(rule, rounds);
  if (failed(verifyBoundRule(rule)) || failed(plan.run()))
    return failure();
  ProgramBuilder(rule, transfers, rounds, plan.analysis, plan.traversals,
                 plan.finish)
      .build();
  return success();
}

namespace {
struct FormPrograms : step::impl::FormProgramsBase<FormPrograms> {
  void runOnOperation() override {
    SmallVector<RuleOp> rules(getOperation().getBody().getOps<RuleOp>());
    std::vector<Transfers> transfers;
    for (RuleOp rule : rules)
      transfers.push_back(takeTransfers(rule));
    // Of all rules together, so before the first is gone.
    Rounds rounds(getOperation());
    for (auto [rule, own] : llvm::zip(rules, transfers))
      if (failed(formProgram(rule, own, rounds)))
        return signalPassFailure();
    for (RuleOp rule : rules)
      rule.erase();
    for (ScalarsOp op : rounds.getScalarsOps())
      op.setRound(rounds.getRound(op));
  }
};
} // namespace
