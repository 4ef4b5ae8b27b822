//===- ExpandPow.cpp - step-expand-pow ------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/FunctionEmitter.h"
#include "passes/lower/ScalarFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::step {
#define GEN_PASS_DEF_EXPANDPOW
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// "power" of elements, "power_16" of vectors of 16.
static std::string getFunctionName(Type type) {
  auto vector = dyn_cast<VectorType>(type);
  return vector ? "power_" + std::to_string(vector.getNumElements()) : "power";
}

namespace {
struct ExpandPow : step::impl::ExpandPowBase<ExpandPow> {
  void runOnOperation() override {
    Location loc = getOperation().getLoc();
    llvm::MapVector<Type, SmallVector<Operation *>> ofDoubles;
    getOperation().walk([&](PowOp op) {
      if (canExpand(op) && getElementTypeOrSelf(op.getType()).isF64())
        ofDoubles[op.getType()].push_back(op);
    });
    for (auto &[type, ops] : ofDoubles)
      callInstead(ops, getFunctionName(type), [&](OpBuilder &b, ValueRange in) {
        return emitPow(b, loc, in[0], in[1]);
      });
    expandEach<PowOp>(getOperation(), [](OpBuilder &b, PowOp op) {
      return emitPow(b, op.getLoc(), op.getBase(), op.getExponent());
    });
  }
};
} // namespace
