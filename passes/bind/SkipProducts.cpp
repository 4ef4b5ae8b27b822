//===- SkipProducts.cpp - step-skip-products ------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "passes/bind/UnlessFlags.h"

namespace mlir::step {
#define GEN_PASS_DEF_SKIPPRODUCTS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

static void skip(RuleOp rule) {
  Needs needs(rule);
  // For each flag and side the one that says when something is left out.
  SmallVector<std::pair<Unneeded, Value>> flags;
  for (auto op : llvm::make_early_inc_range(
           rule.getBody().front().getOps<MatrixOpInterface>())) {
    Unneeded unneeded = needs.lookup(op->getResult(0));
    if (!unneeded.flag || op.getUnless())
      continue;
    auto known = llvm::find_if(
        flags, [&](const auto &one) { return one.first == unneeded; });
    if (known != flags.end()) {
      op.setUnless(known->second);
      continue;
    }
    Value flag = makeUnless(unneeded, op);
    op.setUnless(flag);
    flags.push_back({unneeded, flag});
  }
}

namespace {
struct SkipProducts : step::impl::SkipProductsBase<SkipProducts> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (rule.isBound())
        skip(rule);
  }
};
} // namespace
