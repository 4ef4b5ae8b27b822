//===- RuleCost.cpp - what a step of a rule costs -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/RuleCost.h"

#include "passes/bind/UnlessFlags.h"

using namespace mlir;
using namespace mlir::step;

/// Of an f32.
static constexpr int64_t kBytes = 4;

static WorkSum &getSum(std::vector<WorkSum> &sums, int64_t period) {
  auto same = llvm::find_if(
      sums, [&](const WorkSum &sum) { return sum.getPeriod() == period; });
  return same == sums.end() ? sums.emplace_back(period) : *same;
}

/// What the rule is given is read where somebody uses it, and written where it
/// returns something else.
static void addArguments(RuleOp rule, RuleCost &cost) {
  llvm::SmallPtrSet<Value, 8> kept;
  for (Value value : rule.getBody().front().getTerminator()->getOperands())
    kept.insert(value);
  for (BlockArgument argument : rule.getBody().getArguments()) {
    RoleAttr role = rule.getRole(argument.getArgNumber());
    if (!isShaped(argument.getType()))
      continue;
    bool isWritten =
        role.getKind() != RoleKind::Grad && !kept.contains(argument);
    int64_t bytes = kBytes * (int64_t(!argument.use_empty()) + isWritten);
    ArrayRef<StringAttr> dims = getDims(argument.getType());
    if (Value guard = rule.getGuard(argument.getArgNumber())) {
      WorkSum sum;
      sum.add(bytes, 1, dims);
      cost.guarded.push_back({guard.getDefiningOp<OptionOp>(), sum});
    } else {
      getSum(cost.bytes, 1).add(bytes, 1, dims);
    }
  }
}

RuleCost mlir::step::getRuleCost(RuleOp rule) {
  RuleCost cost;
  addArguments(rule, cost);
  Needs needs(rule);
  for (auto op : rule.getBody().front().getOps<MatrixOpInterface>()) {
    // It is read where it is.
    if (isa<TransposeOp>(op))
      continue;
    int64_t period = 1;
    if (Unneeded unneeded = needs.lookup(op->getResult(0)); unneeded.flag)
      period = getPeriod(unneeded.flag, !unneeded.holds);
    if (period == 0)
      continue;
    WorkSum flops = getFlops(op, period);
    if (!flops.getTerms().empty())
      getSum(cost.flops, period).add(flops);
    WorkSum &bytes = getSum(cost.bytes, period);
    for (Value operand : op->getOperands())
      if (isShaped(operand.getType()))
        bytes.add(kBytes, 1, getDims(operand.getType()));
    bytes.add(kBytes, 1, getDims(op->getResult(0).getType()));
  }
  return cost;
}
