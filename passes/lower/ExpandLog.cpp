//===- ExpandLog.cpp - step-expand-log ------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/FunctionEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::step {
#define GEN_PASS_DEF_EXPANDLOG
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
struct ExpandLog : step::impl::ExpandLogBase<ExpandLog> {
  void runOnOperation() override {
    expandEach<LogOp>(getOperation(), [](OpBuilder &b, LogOp op) {
      return emitLog(b, op.getLoc(), op.getOperand());
    });
  }
};
} // namespace
