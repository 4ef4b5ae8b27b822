//===- ReassociateMeans.cpp - step-reassociate-means ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "dialect/Reassociation.h"

#include "mlir/IR/Builders.h"

namespace mlir::step {
#define GEN_PASS_DEF_REASSOCIATEMEANS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// Erases what nothing uses any more: the square that was reduced.
static void eraseUnused(Value value) {
  if (Operation *op = value.getDefiningOp(); op && op->use_empty())
    op->erase();
}

static void reassociate(ReductionOpInterface reduction) {
  OpBuilder builder(reduction);
  Value form = expandReassociable(builder, reduction);
  if (!form) {
    reduction.setReassociable(false);
    return;
  }
  Value input = reduction.getInput();
  reduction->getResult(0).replaceAllUsesWith(form);
  reduction->erase();
  eraseUnused(input);
}

namespace {
struct ReassociateMeans : step::impl::ReassociateMeansBase<ReassociateMeans> {
  void runOnOperation() override {
    SmallVector<ReductionOpInterface> free;
    getOperation().walk([&](ReductionOpInterface reduction) {
      if (reduction.getReassociable())
        free.push_back(reduction);
    });
    for (ReductionOpInterface reduction : free)
      reassociate(reduction);
  }
};
} // namespace
