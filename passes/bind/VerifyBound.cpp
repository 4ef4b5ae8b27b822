//===- VerifyBound.cpp - step-verify-bound --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/bind/BoundRule.h"

namespace mlir::step {
#define GEN_PASS_DEF_VERIFYBOUND
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
struct VerifyBound : step::impl::VerifyBoundBase<VerifyBound> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (failed(verifyBoundRule(rule)))
        return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
