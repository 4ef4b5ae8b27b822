//===- KeepOverRounds.cpp - step-keep-over-rounds -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "mlir/IR/Builders.h"

namespace mlir::step {
#define GEN_PASS_DEF_KEEPOVERROUNDS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// Puts step.keep behind each buffer that a later segment uses. Such uses are
/// of what is kept; those of the buffer's own segment stay.
static void keepOverRounds(ProgramOp program) {
  DenseMap<Operation *, int64_t> segments;
  SmallVector<Value> made;
  int64_t segment = 0;
  for (Operation &op : program.getBody().front()) {
    segment += isa<ExchangeOp>(op);
    segments[&op] = segment;
    if (isa<KeepOp>(op))
      continue;
    for (Value result : op.getResults())
      if (isa<BufferType>(result.getType()) &&
          !isa<BlockArgument>(getMemory(result)))
        made.push_back(result);
  }
  OpBuilder builder(program.getContext());
  for (Value buffer : made) {
    Operation *source = buffer.getDefiningOp();
    auto isLater = [&](OpOperand &use) {
      return segments.lookup(use.getOwner()) > segments.lookup(source);
    };
    if (llvm::none_of(buffer.getUses(), isLater))
      continue;
    builder.setInsertionPointAfter(source);
    auto keep = KeepOp::create(builder, source->getLoc(), buffer);
    segments[keep] = segments.lookup(source);
    buffer.replaceUsesWithIf(keep, isLater);
  }
}

namespace {
struct KeepOverRounds : step::impl::KeepOverRoundsBase<KeepOverRounds> {
  void runOnOperation() override {
    for (auto program : getOperation().getBody().getOps<ProgramOp>())
      keepOverRounds(program);
  }
};
} // namespace
