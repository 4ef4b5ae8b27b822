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

/// The narrowest storage among the roles. Storage types are ordered: every bf16
/// is an f32, and every f32 an f64, so the narrowest fits all of them.
static Type getNarrowestStorage(RuleOp rule, ArrayRef<int64_t> roles) {
  Type narrowest;
  for (int64_t role : roles) {
    Type storage = rule.getRole(role).getStorage();
    if (!narrowest ||
        storage.getIntOrFloatBitWidth() < narrowest.getIntOrFloatBitWidth())
      narrowest = storage;
  }
  return narrowest;
}

static void resolve(RuleOp rule, StoredOp stored) {
  Type storage = getNarrowestStorage(rule, stored.getRoles());
  Value value = stored.getOperand();
  if (storage != rule.getVariantAttr().getCompute()) {
    OpBuilder builder(stored);
    value = RoundOp::create(builder, stored.getLoc(), value,
                            TypeAttr::get(storage));
  }
  stored.getResult().replaceAllUsesWith(value);
  stored.erase();
}

namespace {
struct ResolveStorage : step::impl::ResolveStorageBase<ResolveStorage> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (rule.isBound())
        rule.walk([&](StoredOp stored) { resolve(rule, stored); });
  }
};
} // namespace
