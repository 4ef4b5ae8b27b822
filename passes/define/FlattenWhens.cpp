//===- FlattenWhens.cpp - step-flatten-whens ------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "mlir/IR/Builders.h"

namespace mlir::step {
#define GEN_PASS_DEF_FLATTENWHENS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

static void flatten(WhenOp when) {
  YieldOp yield = when.getYield();
  SmallVector<Value> made(yield.getValues());
  yield.erase();
  Block &body = when.getBody().front();
  when->getBlock()->getOperations().splice(Block::iterator(when),
                                           body.getOperations());
  OpBuilder builder(when);
  for (auto [result, value, old] :
       llvm::zip(when.getResults(), made, when.getOld()))
    result.replaceAllUsesWith(SelectOp::create(
        builder, when.getLoc(), when.getCondition(), value, old));
  when.erase();
}

namespace {
struct FlattenWhens : step::impl::FlattenWhensBase<FlattenWhens> {
  void runOnOperation() override { getOperation().walk(flatten); }
};
} // namespace
