//===- ExpandPowi.cpp - step-expand-powi ----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/ScalarFunctions.h"
#include "passes/lower/Words.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::step {
#define GEN_PASS_DEF_EXPANDPOWI
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// The loop of step.powi's description. State of the loop: what is left of the
/// exponent, the result so far, and base^(2^i) at the i-th bit.
static Value expand(OpBuilder &b, Location loc, Value base, Value exponent) {
  Words w(b, loc);
  Value one = w.number(1.0);
  Value zero = w.constantWord(0), bit = w.constantWord(1);
  Value negative = w.isLess(exponent, zero);
  Value magnitude = w.select(negative, w.sub(zero, exponent), exponent);
  auto isThere = [&](Value word) { return w.isUnequal(word, zero); };
  auto multiply = [&](ValueRange values) -> SmallVector<Value> {
    Value rest = values[0], result = values[1], factor = values[2];
    Value odd = isThere(w.both(rest, bit));
    Value product = arith::MulFOp::create(b, loc, result, factor);
    Value next = w.select(odd, product, result);
    Value square = arith::MulFOp::create(b, loc, factor, factor);
    return {w.shiftRight(rest, 1), next, square};
  };
  Value power = w.repeatAll(
      {magnitude, one, base},
      [&](ValueRange values) { return isThere(values[0]); }, multiply)[1];
  Value inverse = arith::DivFOp::create(b, loc, one, power);
  return w.select(negative, inverse, power);
}

namespace {
struct ExpandPowi : step::impl::ExpandPowiBase<ExpandPowi> {
  void runOnOperation() override {
    Location loc = getOperation().getLoc();
    SmallVector<Operation *> ops;
    getOperation().walk([&](PowiOp op) { ops.push_back(op); });
    callInstead(ops, "integer_power", [&](OpBuilder &b, ValueRange in) {
      return expand(b, loc, in[0], in[1]);
    });
  }
};
} // namespace
