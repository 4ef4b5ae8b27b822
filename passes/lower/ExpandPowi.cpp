//===- ExpandPowi.cpp - step-expand-powi ----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/ScalarFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"

namespace mlir::step {
#define GEN_PASS_DEF_EXPANDPOWI
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// The loop of step.powi's description. State of the loop: what is left of the
/// exponent, the result so far, and base^(2^i) at the i-th bit.
static Value expand(OpBuilder &b, Location loc, Value base, Value exponent) {
  Type i64 = b.getI64Type(), f64 = b.getF64Type();
  auto integer = [&](int64_t value) {
    return arith::ConstantIntOp::create(b, loc, i64, value);
  };
  Value one = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(1.0));
  Value zero = integer(0), bit = integer(1);
  Value negative =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, exponent, zero);
  Value opposite = arith::SubIOp::create(b, loc, zero, exponent);
  Value magnitude =
      arith::SelectOp::create(b, loc, negative, opposite, exponent);

  auto loop = scf::WhileOp::create(b, loc, TypeRange{i64, f64, f64},
                                   ValueRange{magnitude, one, base});
  SmallVector<Location> locs(3, loc);
  {
    OpBuilder::InsertionGuard guard(b);
    Block *before = b.createBlock(&loop.getBefore(), {}, {i64, f64, f64}, locs);
    Value more = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                       before->getArgument(0), zero);
    scf::ConditionOp::create(b, loc, more, before->getArguments());
    Block *after = b.createBlock(&loop.getAfter(), {}, {i64, f64, f64}, locs);
    Value rest = after->getArgument(0), result = after->getArgument(1),
          factor = after->getArgument(2);
    Value lowest = arith::AndIOp::create(b, loc, rest, bit);
    Value odd =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, lowest, zero);
    Value product = arith::MulFOp::create(b, loc, result, factor);
    Value next = arith::SelectOp::create(b, loc, odd, product, result);
    Value square = arith::MulFOp::create(b, loc, factor, factor);
    Value shifted = arith::ShRUIOp::create(b, loc, rest, bit);
    scf::YieldOp::create(b, loc, ValueRange{shifted, next, square});
  }
  Value power = loop.getResult(1);
  Value inverse = arith::DivFOp::create(b, loc, one, power);
  return arith::SelectOp::create(b, loc, negative, inverse, power);
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
