//===- ExpandIdentities.cpp - step-expand-identities ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::step {
#define GEN_PASS_DEF_EXPANDIDENTITIES
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

static void expand(IdentityOp identity) {
  ImplicitLocOpBuilder b(identity.getLoc(), identity);
  auto makeIndex = [&](unsigned fromLast) {
    SmallVector<StringAttr> dims(getDims(identity.getType()));
    dims[dims.size() - fromLast] = b.getStringAttr("1");
    return IndexOp::create(b, SymTensorType::get(b.getContext(), dims),
                           Value());
  };
  Value row = makeIndex(1), column = makeIndex(2);
  Value same = CompareOp::create(b, Predicate::EQ, row, column);
  Value one = ConstantOp::create(b, 1.0), zero = ConstantOp::create(b, 0.0);
  identity.replaceAllUsesWith(SelectOp::create(b, same, one, zero).getResult());
  identity.erase();
}

namespace {
struct ExpandIdentities : step::impl::ExpandIdentitiesBase<ExpandIdentities> {
  void runOnOperation() override { getOperation().walk(expand); }
};
} // namespace
