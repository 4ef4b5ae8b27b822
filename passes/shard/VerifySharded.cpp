//===- VerifySharded.cpp - step-verify-sharded ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/bind/BoundRule.h"
#include "passes/shard/Sharding.h"

#include "mlir/IR/Builders.h"

namespace mlir::step {
#define GEN_PASS_DEF_VERIFYSHARDED
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

static LogicalResult verifyReduction(RuleOp rule,
                                     ReductionOpInterface reduction) {
  SmallVector<StringAttr> crossed = getCrossedDims(rule, reduction);
  ArrayAttr across = reduction.getAcrossAttr();
  if (crossed.empty()) {
    if (across)
      return reduction->emitOpError(
          "is across ranks that all have what it reduces");
    return success();
  }
  if (!across) {
    if (isOnlyContributed(reduction))
      return success();
    return reduction->emitOpError()
           << "has a rank's part of the sum over dim '" << crossed[0].getValue()
           << "' as its result, which is used as if it were the whole";
  }
  LayoutAttr layout = rule.getVariantAttr().getLayout();
  if (across != ArrayAttr::get(rule.getContext(), getAxes(layout, crossed)))
    return reduction->emitOpError()
           << "is across " << across << ", where the layout is " << layout;
  return success();
}

/// What brings the gradient and takes the param is what the entry asks for.
static LogicalResult verifyExchanges(RuleOp rule) {
  SmallVector<PlannedTransfer> planned = planTransfers(rule.getVariantAttr());
  auto isPlanned = [](TransferOpInterface op, const PlannedTransfer &plan) {
    return op->getName().getStringRef() == plan.name &&
           op.getOver() == plan.over && bool(op.getWireType()) == plan.sums;
  };
  size_t next = 0;
  for (auto op : rule.getBody().front().getOps<TransferOpInterface>()) {
    if (next == planned.size() || !isPlanned(op, planned[next]))
      return op.emitOpError("is not what brings the gradient of the variant, "
                            "or takes its param, there");
    ++next;
  }
  if (next < planned.size())
    return rule.emitOpError() << "has no '" << planned[next].name << "' over "
                              << planned[next].over;
  return success();
}

namespace {
struct VerifySharded : step::impl::VerifyShardedBase<VerifySharded> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>()) {
      if (failed(verifyBoundRule(rule)))
        return signalPassFailure();
      if (failed(verifyExchanges(rule)))
        return signalPassFailure();
      for (auto reduction :
           rule.getBody().front().getOps<ReductionOpInterface>())
        if (failed(verifyReduction(rule, reduction)))
          return signalPassFailure();
    }
    markAllAnalysesPreserved();
  }
};
} // namespace
