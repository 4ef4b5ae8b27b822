//===- ExpandLerp.cpp - step-expand-lerp ----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "dialect/Step.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace mlir::step {
#define GEN_PASS_DEF_EXPANDLERP
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// From the nearer end, so that both ends are exact.
static Value expand(LerpOp op) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  Value start = op.getStart(), end = op.getEnd(), weight = op.getWeight();
  auto constant = [&](double value) {
    return arith::ConstantOp::create(b,
                                     b.getFloatAttr(weight.getType(), value));
  };
  Value nearStart = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, weight,
                                          constant(0.5));
  Value fromEnd = arith::SubFOp::create(b, weight, constant(1.0));
  Value factor = arith::SelectOp::create(b, nearStart, weight, fromEnd);
  Value nearer = arith::SelectOp::create(b, nearStart, start, end);
  Value difference = arith::SubFOp::create(b, end, start);
  Value product = arith::MulFOp::create(b, factor, difference);
  return arith::AddFOp::create(b, nearer, product);
}

namespace {
struct ExpandLerp : step::impl::ExpandLerpBase<ExpandLerp> {
  void runOnOperation() override {
    getOperation().walk([](LerpOp op) {
      // What is of the language is left.
      bool isCode = op->getParentOfType<ProgramOp>() ||
                    op->getParentOfType<FunctionOpInterface>();
      if (!isCode || !isa<FloatType>(op.getType()))
        return;
      op->replaceAllUsesWith(ValueRange(expand(op)));
      op->erase();
    });
  }
};
} // namespace
