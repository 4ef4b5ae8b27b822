//===- UnrollRepeats.cpp - step-unroll-repeats ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::step {
#define GEN_PASS_DEF_UNROLLREPEATS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

static void unroll(RepeatOp repeat) {
  OpBuilder builder(repeat);
  SmallVector<Value> values(repeat.getInits());
  for (int64_t time = 0; time < int64_t(repeat.getTimes()); ++time) {
    IRMapping mapping;
    mapping.map(repeat.getBody().getArguments(), values);
    for (Operation &op : repeat.getBody().front().without_terminator())
      builder.clone(op, mapping);
    values =
        llvm::map_to_vector(repeat.getYield().getValues(), [&](Value value) {
          return mapping.lookupOrDefault(value);
        });
  }
  repeat.replaceAllUsesWith(values);
  repeat.erase();
}

namespace {
struct UnrollRepeats : step::impl::UnrollRepeatsBase<UnrollRepeats> {
  void runOnOperation() override {
    // What is copied has none: those inside come first.
    getOperation().walk<WalkOrder::PostOrder>(unroll);
  }
};
} // namespace
