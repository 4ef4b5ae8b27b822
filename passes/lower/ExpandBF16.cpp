//===- ExpandBF16.cpp - step-expand-bf16 ----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace mlir::step {
#define GEN_PASS_DEF_EXPANDBF16
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
struct ExpandBF16 : step::impl::ExpandBF16Base<ExpandBF16> {
  void runOnOperation() override {
    // Between bf16 and f64 there is no expansion, and the function that LLVM
    // would call is linked by nobody; binding refuses such storage.
    WalkResult direct = getOperation().walk([](Operation *op) -> WalkResult {
      if (!isa<arith::ExtFOp, arith::TruncFOp>(op))
        return WalkResult::advance();
      Type from = getElementTypeOrSelf(op->getOperand(0).getType());
      Type to = getElementTypeOrSelf(op->getResult(0).getType());
      if ((from.isBF16() && to.isF64()) || (from.isF64() && to.isBF16()))
        return op->emitOpError()
               << "converts between bf16 and f64, which is not supported";
      return WalkResult::advance();
    });
    if (direct.wasInterrupted())
      return signalPassFailure();
    RewritePatternSet patterns(&getContext());
    arith::populateExpandBFloat16Patterns(patterns);
    // What they make has no bf16 any more: each op is looked at once.
    walkAndApplyPatterns(getOperation(), std::move(patterns));
  }
};
} // namespace
