//===- MarkStored.cpp - step-mark-stored ----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::step {
#define GEN_PASS_DEF_MARKSTORED
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// Marks `value`, computed by an operation, right after that operation.
static void markAtDefinition(Value value, ArrayRef<int64_t> roles) {
  OpBuilder builder(value.getContext());
  builder.setInsertionPointAfterValue(value);
  auto stored = StoredOp::create(builder, value.getLoc(), value, roles);
  value.replaceAllUsesExcept(stored, stored);
}

/// Marks an argument where it is stored for another one. The interpreter rounds
/// only the stored copy, so other uses keep the argument.
static void markAtReturn(OpOperand &operand, int64_t role) {
  OpBuilder builder(operand.getOwner());
  operand.set(StoredOp::create(builder, operand.getOwner()->getLoc(),
                               operand.get(), ArrayRef<int64_t>(role)));
}

static void markRule(RuleOp rule) {
  ReturnOp ret = rule.getReturn();
  llvm::MapVector<Value, SmallVector<int64_t>> rolesOfValue;
  for (auto [operand, index] :
       llvm::zip(ret->getOpOperands(), rule.getReturnedArguments())) {
    auto argument = dyn_cast<BlockArgument>(operand.get());
    if (!argument)
      rolesOfValue[operand.get()].push_back(index);
    else if (argument.getArgNumber() != index)
      markAtReturn(operand, index);
  }
  for (auto &[value, roles] : rolesOfValue)
    if (!value.getDefiningOp<StoredOp>())
      markAtDefinition(value, roles);
}

namespace {
struct MarkStored : step::impl::MarkStoredBase<MarkStored> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (!rule.isBound())
        markRule(rule);
  }
};
} // namespace
