//===- DropUnreadContributions.cpp - step-drop-unread-contributions -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::step {
#define GEN_PASS_DEF_DROPUNREADCONTRIBUTIONS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

static bool isRead(ContributeOp contribute) {
  return llvm::any_of(contribute.getStatistic().getUsers(),
                      [](Operation *user) { return !isa<ContributeOp>(user); });
}

static void dropUnread(RuleOp rule) {
  Block &body = rule.getBody().front();
  for (auto contribute :
       llvm::make_early_inc_range(body.getOps<ContributeOp>()))
    if (!isRead(contribute))
      contribute.erase();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

namespace {
struct DropUnreadContributions
    : step::impl::DropUnreadContributionsBase<DropUnreadContributions> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      dropUnread(rule);
  }
};
} // namespace
