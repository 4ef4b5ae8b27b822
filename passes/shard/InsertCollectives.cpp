//===- InsertCollectives.cpp - step-insert-collectives --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A value of a rule lies as the param does, in the dims that it has. So nothing
// is to be decided: elementwise operations need no other rank, and a reduction
// needs those that have other parts of what it reduces.
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/shard/Sharding.h"

#include "mlir/IR/Builders.h"

namespace mlir::step {
#define GEN_PASS_DEF_INSERTCOLLECTIVES
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// Binding gives no rule such a layout: one rank steps the whole tensor.
static LogicalResult checkLayout(RuleOp rule, LayoutAttr layout) {
  if (!findUnshardableDim(rule, layout))
    return success();
  return rule.emitOpError() << describeUnshardable(rule, layout);
}

static LogicalResult insertCollectives(RuleOp rule) {
  LayoutAttr layout =
      rule.getVariantAttr() ? rule.getVariantAttr().getLayout() : LayoutAttr();
  if (!layout)
    return success();
  if (failed(checkLayout(rule, layout)))
    return failure();
  for (auto reduction : rule.getBody().front().getOps<ReductionOpInterface>()) {
    SmallVector<StringAttr> crossed = getCrossedDims(rule, reduction);
    if (!crossed.empty() && !isOnlyContributed(reduction))
      reduction->setAttr("across", ArrayAttr::get(rule.getContext(),
                                                  getAxes(layout, crossed)));
  }
  return success();
}

namespace {
struct InsertCollectives
    : step::impl::InsertCollectivesBase<InsertCollectives> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (failed(insertCollectives(rule)))
        return signalPassFailure();
  }
};
} // namespace
