//===- NumberTensors.cpp - step-number-tensors ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/bind/BoundRule.h"

namespace mlir::step {
#define GEN_PASS_DEF_NUMBERTENSORS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
struct NumberTensors : step::impl::NumberTensorsBase<NumberTensors> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (rule.isBound())
        rule.walk([&](RandomNormalOp op) {
          op.getPositionMutable().assign(getPosition(rule));
        });
  }
};
} // namespace
