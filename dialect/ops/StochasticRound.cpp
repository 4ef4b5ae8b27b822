//===- StochasticRound.cpp - rounding by random bits ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The generator is Philox4x32-10 of J. K. Salmon, M. A. Moraes, R. O. Dror,
// D. E. Shaw: Parallel Random Numbers: As Easy as 1, 2, 3. SC 2011.
//
//===----------------------------------------------------------------------===//
#include "dialect/ops/StochasticRound.h"

#include "dialect/RandomBits.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// Arithmetic of 64-bit words, of which the operations are cloned for vectors.
class WordEmitter {
public:
  WordEmitter(OpBuilder &builder, Location loc) : b(builder), loc(loc) {}

  Value constant(int64_t value) const {
    return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value));
  }
  Value add(Value x, Value y) const {
    return arith::AddIOp::create(b, loc, x, y);
  }
  Value multiply(Value x, Value y) const {
    return arith::MulIOp::create(b, loc, x, y);
  }
  Value both(Value x, Value y) const {
    return arith::AndIOp::create(b, loc, x, y);
  }
  Value differ(Value x, Value y) const {
    return arith::XOrIOp::create(b, loc, x, y);
  }
  Value shiftRight(Value x, Value bits) const {
    return arith::ShRUIOp::create(b, loc, x, bits);
  }
  /// Whether bit `number` of the word is not set.
  Value lacksBit(Value x, int64_t number) const {
    Value bit = both(x, constant(int64_t(1) << number));
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, bit,
                                 constant(0));
  }
  Value select(Value condition, Value x, Value y) const {
    return arith::SelectOp::create(b, loc, condition, x, y);
  }

  OpBuilder &b;
  Location loc;
};
} // namespace

/// The random number from 0 to 65535, an i32. The generator's words of 32 bits
/// are the lower halves of i64, whose upper halves mean nothing: so a product
/// is one multiplication of vectors, and no lane changes its width.
static Value emitHalf(OpBuilder &builder, Location loc,
                      const StochasticRound &round, StringRef name) {
  WordEmitter w(builder, loc);
  Value upper = w.constant(32), lower = w.constant(0xffffffff);
  Value c0 = w.shiftRight(round.position, w.constant(kHalvesBits));
  Value c1 = w.shiftRight(c0, upper);
  Value c2 = round.count, c3 = w.constant(hashName(name));
  Value k0 = round.seed, k1 = w.shiftRight(round.seed, upper);
  Value factor0 = w.constant(Philox::kFactor0);
  Value factor1 = w.constant(Philox::kFactor1);
  for (int number = 0; number < Philox::kRounds; ++number) {
    if (number) {
      k0 = w.add(k0, w.constant(Philox::kWeyl0));
      k1 = w.add(k1, w.constant(Philox::kWeyl1));
    }
    Value even = w.multiply(w.both(c0, lower), factor0);
    Value odd = w.multiply(w.both(c2, lower), factor1);
    c0 = w.differ(w.differ(w.shiftRight(odd, upper), c1), k0);
    c2 = w.differ(w.differ(w.shiftRight(even, upper), c3), k1);
    c1 = odd;
    c3 = even;
  }
  Value isFirst = w.lacksBit(round.position, 2);
  Value isEven = w.lacksBit(round.position, 1);
  Value word =
      w.select(isFirst, w.select(isEven, c0, c1), w.select(isEven, c2, c3));
  Value half = w.select(w.lacksBit(round.position, 0), word,
                        w.shiftRight(word, w.constant(16)));
  half = w.both(half, w.constant(0xffff));
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
