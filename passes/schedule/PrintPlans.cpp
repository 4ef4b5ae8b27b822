//===- PrintPlans.cpp - what the schedule stage decides, as text ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// step-print-times, step-print-traversals and step-print-finishes.
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/schedule/RulePlan.h"

namespace mlir::step {
#define GEN_PASS_DEF_PRINTFINISHES
#define GEN_PASS_DEF_PRINTTIMES
#define GEN_PASS_DEF_PRINTTRAVERSALS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
/// A pass that prints one part of a rule's plan.
template <typename Base, auto part>
struct PrintPart : Base {
  void runOnOperation() override {
    auto print = [](const RulePlan &plan, raw_ostream &os, AsmState &state) {
      (plan.*part).print(os, state);
    };
    if (failed(printPlans(this->getOperation(), print)))
      return this->signalPassFailure();
    this->markAllAnalysesPreserved();
  }
};

struct PrintTimes
    : PrintPart<step::impl::PrintTimesBase<PrintTimes>, &RulePlan::analysis> {};
struct PrintTraversals
    : PrintPart<step::impl::PrintTraversalsBase<PrintTraversals>,
                &RulePlan::traversals> {};
struct PrintFinishes : PrintPart<step::impl::PrintFinishesBase<PrintFinishes>,
                                 &RulePlan::finish> {};
} // namespace
