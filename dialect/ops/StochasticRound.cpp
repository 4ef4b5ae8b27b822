//===- StochasticRound.cpp - rounding by random bits ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "dialect/ops/StochasticRound.h"

#include "dialect/Philox.h"
#include "dialect/RandomBits.h"

using namespace mlir;
using namespace mlir::step;

/// The random number from 0 to 65535, an i32.
static Value emitHalf(OpBuilder &builder, Location loc,
                      const StochasticRound &round, StringRef name) {
  WordEmitter w(builder, loc);
  Value block = w.shiftRight(round.position, kHalvesBits);
  auto [c0, c1, c2, c3] =
      emitPhilox(w,
                 {block, w.shiftRight(block, 32), round.count,
                  w.constantWord(hashName(name))},
                 round.seed);
  Value isFirst = w.lacksBit(round.position, 2);
  Value isEven = w.lacksBit(round.position, 1);
  Value word =
      w.select(isFirst, w.select(isEven, c0, c1), w.select(isEven, c2, c3));
  Value half =
      w.select(w.lacksBit(round.position, 0), word, w.shiftRight(word, 16));
  half = w.both(half, w.constantWord(0xffff));
  return arith::TruncIOp::create(builder, loc, builder.getI32Type(), half);
}

Value mlir::step::emitStochasticRound(OpBuilder &b, Location loc,
                                      const StochasticRound &round,
                                      StringRef name) {
  auto constant = [&](uint32_t value) {
    return arith::ConstantOp::create(b, loc,
                                     b.getI32IntegerAttr(int32_t(value)));
  };
  Value bits = arith::BitcastOp::create(b, loc, b.getI32Type(), round.value);
  Value kept = constant(0xffff0000), infinity = constant(0x7f800000);
  Value sum =
      arith::AddIOp::create(b, loc, bits, emitHalf(b, loc, round, name));
  Value result = arith::AndIOp::create(b, loc, sum, kept);
  // Finite values stay so; what is infinite already has no lower half.
  Value exponent = arith::AndIOp::create(b, loc, result, infinity);
  Value isInfinite = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                           exponent, infinity);
  Value toZero = arith::AndIOp::create(b, loc, bits, kept);
  result = arith::SelectOp::create(b, loc, isInfinite, toZero, result);
  Value isNaN = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO,
                                      round.value, round.value);
  result = arith::SelectOp::create(b, loc, isNaN, constant(0x7fc00000), result);
  return arith::BitcastOp::create(b, loc, round.value.getType(), result);
}
