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
#include "passes/schedule/StochasticRound.h"

#include "dialect/RandomBits.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// Arithmetic of 32-bit words, of which the operations are cloned for vectors.
class WordEmitter {
public:
  WordEmitter(OpBuilder &builder, Location loc) : b(builder), loc(loc) {}

  Value constant(uint32_t value) const {
    return arith::ConstantOp::create(b, loc,
                                     b.getI32IntegerAttr(int32_t(value)));
  }
  /// Word 0 or 1, the lower first, of an i64.
  Value word(Value value, int64_t number) const {
    if (number)
      value = arith::ShRUIOp::create(b, loc, value, constant64(32));
    return arith::TruncIOp::create(b, loc, b.getI32Type(), value);
  }
  Value constant64(int64_t value) const {
    return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value));
  }
  Value add(Value x, Value y) const {
    return arith::AddIOp::create(b, loc, x, y);
  }
  Value both(Value x, Value y) const {
    return arith::AndIOp::create(b, loc, x, y);
  }
  Value differ(Value x, Value y) const {
    return arith::XOrIOp::create(b, loc, x, y);
  }
  /// The upper and the lower word of the product.
  std::pair<Value, Value> multiply(Value x, uint32_t factor) const {
    Value wide = arith::ExtUIOp::create(b, loc, b.getI64Type(), x);
    wide = arith::MulIOp::create(b, loc, wide, constant64(factor));
    return {word(wide, 1), word(wide, 0)};
  }
  Value isEqual(Value x, Value y) const {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, x, y);
  }
  Value select(Value condition, Value x, Value y) const {
    return arith::SelectOp::create(b, loc, condition, x, y);
  }
  /// Whether bit `number` of the word is not set.
  Value lacksBit(Value x, int64_t number) const {
    return isEqual(both(x, constant(1u << number)), constant(0));
  }

  OpBuilder &b;
  Location loc;
};
} // namespace

/// The random number from 0 to 65535.
static Value emitHalf(const WordEmitter &w, const StochasticRound &round,
                      StringRef name) {
  Value block = arith::ShRUIOp::create(w.b, w.loc, round.position,
                                       w.constant64(kHalvesBits));
  Value c0 = w.word(block, 0), c1 = w.word(block, 1);
  Value c2 = w.word(round.count, 0), c3 = w.constant(hashName(name));
  Value k0 = w.word(round.seed, 0), k1 = w.word(round.seed, 1);
  for (int number = 0; number < Philox::kRounds; ++number) {
    if (number) {
      k0 = w.add(k0, w.constant(Philox::kWeyl0));
      k1 = w.add(k1, w.constant(Philox::kWeyl1));
    }
    auto [high0, low0] = w.multiply(c0, Philox::kFactor0);
    auto [high1, low1] = w.multiply(c2, Philox::kFactor1);
    c0 = w.differ(w.differ(high1, c1), k0);
    c2 = w.differ(w.differ(high0, c3), k1);
    c1 = low1;
    c3 = low0;
  }
  Value half = w.word(round.position, 0);
  Value isFirst = w.lacksBit(half, 2), isEven = w.lacksBit(half, 1);
  Value word =
      w.select(isFirst, w.select(isEven, c0, c1), w.select(isEven, c2, c3));
  Value upper = arith::ShRUIOp::create(w.b, w.loc, word, w.constant(16));
  return w.select(w.lacksBit(half, 0), w.both(word, w.constant(0xffff)), upper);
}

Value mlir::step::emitStochasticRound(OpBuilder &builder, Location loc,
                                      const StochasticRound &round,
                                      StringRef name) {
  WordEmitter w(builder, loc);
  Type f32 = round.value.getType();
  Value bits =
      arith::BitcastOp::create(builder, loc, builder.getI32Type(), round.value);
  Value kept = w.constant(0xffff0000), infinity = w.constant(0x7f800000);
  Value result = w.both(w.add(bits, emitHalf(w, round, name)), kept);
  // Finite values stay so; what is infinite already has no lower half.
  Value isInfinite = w.isEqual(w.both(result, infinity), infinity);
  result = w.select(isInfinite, w.both(bits, kept), result);
  Value isNaN = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::UNO,
                                      round.value, round.value);
  result = w.select(isNaN, w.constant(0x7fc00000), result);
  return arith::BitcastOp::create(builder, loc, f32, result);
}
