//===- ExpandExp.cpp - step-expand-exp ------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/FunctionEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::step {
#define GEN_PASS_DEF_EXPANDEXP
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
struct ExpandExp : step::impl::ExpandExpBase<ExpandExp> {
  void runOnOperation() override {
    expandEach<ExpOp>(getOperation(), [](OpBuilder &b, ExpOp op) {
      return emitExp(b, op.getLoc(), op.getOperand());
    });
  }
};
} // namespace
