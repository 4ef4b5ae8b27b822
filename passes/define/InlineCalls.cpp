//===- InlineCalls.cpp - step-inline-calls -------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::step {
#define GEN_PASS_DEF_INLINECALLS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// Replaces a call by copies of operations, which have the places of these:
/// what is said of them is said of the definition.
static void inlineCall(CallOp call, DefineOp define) {
  OpBuilder builder(call);
  IRMapping mapping;
  mapping.map(define.getBody().getArguments(), call.getArguments());
  for (Operation &op : define.getBody().front().without_terminator())
    builder.clone(op, mapping);
  for (auto [result, value] :
       llvm::zip(call.getResults(), define.getYield().getValues()))
    result.replaceAllUsesWith(mapping.lookupOrDefault(value));
  call.erase();
}

/// Definitions stand before their calls, so what is copied has none.
static void inlineCalls(Block &body) {
  llvm::StringMap<DefineOp> defines;
  for (Operation &op : body) {
    SmallVector<CallOp> calls;
    op.walk([&](CallOp call) { calls.push_back(call); });
    for (CallOp call : calls)
      inlineCall(call, defines.at(call.getCallee()));
    if (auto define = dyn_cast<DefineOp>(op))
      defines[define.getSymName()] = define;
  }
  for (auto define : llvm::make_early_inc_range(body.getOps<DefineOp>()))
    define.erase();
}

namespace {
struct InlineCalls : step::impl::InlineCallsBase<InlineCalls> {
  void runOnOperation() override {
    for (Operation &op : *getOperation().getBody())
      if (isa<OptimizerOp, FragmentOp>(op))
        inlineCalls(op.getRegion(0).front());
  }
};
} // namespace
