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

/// That of the axes over which the gradient is to be summed none is left out,
/// and that a param that is whole outside of the step is put together again.
static LogicalResult verifyExchanges(RuleOp rule) {
  EntryAttr entry = rule.getVariantAttr().getEntry();
  SmallVector<Attribute> summed;
  bool isPutTogether = false;
  for (auto op : rule.getBody().front().getOps<TransferOpInterface>()) {
    if (!entry)
      return op.emitOpError("stands in a rule whose tensors lie outside of the "
                            "step as they do in it");
    isPutTogether |= !op.isOfGradient();
    if (op.getWireType())
      llvm::append_range(summed, op.getOver());
  }
  if (!entry)
    return success();
  for (auto axis : entry.getPartial().getAsRange<StringAttr>())
    if (!llvm::is_contained(summed, axis))
      return rule.emitOpError()
             << "uses a gradient that is still to be summed over '"
             << axis.getValue() << "'";
  if (!entry.getWhole().empty() && !isPutTogether)
    return rule.emitOpError("returns a param that is not put together");
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
