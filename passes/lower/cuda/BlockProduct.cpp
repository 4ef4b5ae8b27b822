//===- BlockProduct.cpp - products of factors of bf16 ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/BlockProduct.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::step;

/// The zero of its sign.
static Value toZero(const Words &w, Value number) {
  Type i32 = w.b.getI32Type();
  Value bits = arith::BitcastOp::create(w.b, w.loc, i32, number);
  Value mask = arith::ConstantOp::create(
      w.b, w.loc, w.b.getI32IntegerAttr(std::numeric_limits<int32_t>::min()));
  return arith::BitcastOp::create(w.b, w.loc, number.getType(),
                                  w.both(bits, mask));
}

/// The f32 of the bf16 nearest to it, or a zero where that is denormal.
Value mlir::step::toFactor(const Words &w, Value number) {
  Type f32 = w.b.getF32Type();
  Value narrow = w.narrow(number, w.b.getBF16Type());
  Value rounded = arith::ExtFOp::create(w.b, w.loc, f32, narrow);
  Value size = math::AbsFOp::create(w.b, w.loc, rounded);
  Value least =
      arith::ConstantOp::create(w.b, w.loc, w.b.getF32FloatAttr(0x1p-126F));
  Value isDenormal =
      arith::CmpFOp::create(w.b, w.loc, arith::CmpFPredicate::OLT, size, least);
  return w.select(isDenormal, toZero(w, rounded), rounded);
}

/// One more product of factors of bf16. A sum is a zero where it is below
/// 2^-126 once it has 24 bits; 2^-126 - 2^-151 is a tie, which goes up. In f64
/// the product is exact, and the sum where it is near that.
Value mlir::step::addFactors(const Words &w, Value x, Value y, Value sum) {
  Type f64 = w.b.getF64Type();
  auto widen = [&](Value value) -> Value {
    return arith::ExtFOp::create(w.b, w.loc, f64, value);
  };
  Value made = math::FmaOp::create(w.b, w.loc, x, y, sum);
  Value product = arith::MulFOp::create(w.b, w.loc, widen(x), widen(y));
  Value size = math::AbsFOp::create(
      w.b, w.loc, arith::AddFOp::create(w.b, w.loc, product, widen(sum)));
  Value isFlushed = arith::CmpFOp::create(w.b, w.loc, arith::CmpFPredicate::OLT,
                                          size, w.number(0x1p-126 - 0x1p-151));
  return w.select(isFlushed, toZero(w, made), made);
}
