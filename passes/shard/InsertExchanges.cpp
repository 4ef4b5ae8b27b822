//===- InsertExchanges.cpp - step-insert-exchanges ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/shard/Sharding.h"

#include "mlir/IR/Builders.h"

namespace mlir::step {
#define GEN_PASS_DEF_INSERTEXCHANGES
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// `value`, after the exchange.
static Value create(OpBuilder &builder, RuleOp rule,
                    const PlannedTransfer &planned, Value value) {
  EntryAttr entry = rule.getVariantAttr().getEntry();
  OperationState state(rule.getLoc(), planned.name, value, value.getType(),
                       builder.getNamedAttr("over", planned.over));
  if (!planned.ofParam)
    state.addAttribute("entry", TypeAttr::get(entry.getGradient()));
  if (planned.sums)
    state.addAttribute("wire", TypeAttr::get(entry.getWire()));
  return builder.create(state)->getResult(0);
}

/// What is planned of the gradient stands first, and makes what the rule uses;
/// what is planned of the param makes what the rule returns.
static void insertExchanges(RuleOp rule) {
  OpBuilder builder(rule.getContext());
  Value argument = rule.getArgumentOfKind(RoleKind::Grad);
  Value gradient = argument;
  builder.setInsertionPointToStart(&rule.getBody().front());
  for (const PlannedTransfer &planned : planTransfers(rule.getVariantAttr())) {
    if (!planned.ofParam) {
      gradient = create(builder, rule, planned, gradient);
      continue;
    }
    ReturnOp returned = rule.getReturn();
    builder.setInsertionPoint(returned);
    for (auto [operand, index] :
         llvm::zip(returned->getOpOperands(), rule.getReturnedArguments()))
      if (rule.getRole(index).getKind() == RoleKind::Param)
        operand.set(create(builder, rule, planned, operand.get()));
  }
  argument.replaceUsesWithIf(gradient, [](OpOperand &use) {
    return !isa<TransferOpInterface>(use.getOwner());
  });
}

namespace {
struct InsertExchanges : step::impl::InsertExchangesBase<InsertExchanges> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (rule.isBound() && rule.getVariantAttr().getEntry())
        insertExchanges(rule);
  }
};
} // namespace
