//===- ResolveStorage.cpp - step-resolve-storage --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "mlir/IR/Builders.h"

namespace mlir::step {
#define GEN_PASS_DEF_RESOLVESTORAGE
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// The narrowest storage among the roles, which fits all of them: every bf16
/// and every f16 is an f32, and every f32 an f64. Null where both 16-bit floats
/// are among them, of which neither fits the other.
static Type getNarrowestStorage(RuleOp rule, ArrayRef<int64_t> roles) {
  Type narrowest;
  for (int64_t role : roles) {
    Type storage = rule.getRole(role).getStorage();
    unsigned bits = storage.getIntOrFloatBitWidth();
    if (!narrowest || bits < narrowest.getIntOrFloatBitWidth())
      narrowest = storage;
    else if (bits == narrowest.getIntOrFloatBitWidth() && storage != narrowest)
      return {};
  }
  return narrowest;
}

static LogicalResult resolve(RuleOp rule, StoredOp stored) {
  Type storage = getNarrowestStorage(rule, stored.getRoles());
  if (!storage)
    return stored.emitOpError(
        "is of a value that is stored as both bf16 and f16, of which neither "
        "has the values of the other");
  Value value = stored.getOperand();
  if (storage != rule.getVariantAttr().getCompute()) {
    OpBuilder builder(stored);
    value = RoundOp::create(builder, stored.getLoc(), value,
                            TypeAttr::get(storage));
  }
  stored.getResult().replaceAllUsesWith(value);
  stored.erase();
  return success();
}

static LogicalResult resolveAll(RuleOp rule) {
  auto each = [&](StoredOp stored) -> WalkResult {
    return resolve(rule, stored);
  };
  return failure(rule.walk(each).wasInterrupted());
}

namespace {
struct ResolveStorage : step::impl::ResolveStorageBase<ResolveStorage> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (rule.isBound() && failed(resolveAll(rule)))
        return signalPassFailure();
  }
};
} // namespace
