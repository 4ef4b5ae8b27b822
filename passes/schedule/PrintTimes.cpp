//===- PrintTimes.cpp - step-print-times --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/schedule/RulePlan.h"

namespace mlir::step {
#define GEN_PASS_DEF_PRINTTIMES
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
struct PrintTimes : step::impl::PrintTimesBase<PrintTimes> {
  void runOnOperation() override {
    auto print = [](const RulePlan &plan, raw_ostream &os, AsmState &state) {
      plan.analysis.print(os, state);
    };
    if (failed(printPlans(getOperation(), print)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
