//===- CodeFormats.cpp - the formats of codes, on a device ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What numerics/Root4.cpp, Float8.cpp and FourBits.cpp do on the processor, to
// the bit: the same rounded operations in the same order.
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/CodeEmitter.h"

using namespace mlir;
using namespace mlir::step;

static constexpr int32_t kSign = int32_t(0x80000000);
/// 2^-96, below which the largest code would not decode to the scale.
static constexpr int32_t kLeastScale = (127 - 96) << 23;
static constexpr int32_t kUnsignedLevels = 255, kSignedLevels = 127;
/// What is added to it is rounded to an integer, which the lowest bits are.
static constexpr float kRounder = 0x1.8p+23F;
/// Less a quarter of a number's bits, those of about its power -1/4; and the
/// polynomial that corrects the fourth root (numerics/Root4.cpp).
static constexpr int32_t kGuess = 0x4f50a3d7;
static constexpr float kSecond = 0x1.ffe084p-1F, kFirst = -0x1.5a624ap+1F,
                       kZeroth = 0x1.5a93a4p+1F;
static constexpr int32_t kHalf = 0x3f000000, kOne = 0x3f800000;
/// Of a float8 3 bits are behind the point, and its exponent is 7 more.
static constexpr int64_t kDropped = 20;
static constexpr int32_t kFloat8Bias = (127 - 7) << 23;
static constexpr float kLargestFloat8 = 448.0F;
/// Of q4: the middles of cubes of levels, of which the lower bits are cut.
static constexpr int32_t kUnsignedLevels4 = 15, kSignedLevels4 = 7;
static constexpr int32_t kNibble = 15, kLimitBits = ~0xffff;
static constexpr int32_t kDitherFactor = int32_t(0x9e3779b1);
static constexpr float kDitherUnit = 0.97F / 0x1p+16F;
static float getShare(int32_t level) {
  int32_t next = level + 1;
  return float((level * level * level + next * next * next) /
               (2.0 * kSignedLevels4 * kSignedLevels4 * kSignedLevels4));
}

/// What codes of q8 stand for in a block whose scale has these bits.
CodeEmitter::Each CodeEmitter::decodeRoot4(Value scale) const {
  Value isSigned = w.isLess(scale, integer(0));
  Value flip = w.select(isSigned, integer(0x80), integer(0));
  Value step = w.select(isSigned, number(1.0F / kSignedLevels),
                        number(1.0F / kUnsignedLevels));
  Value top = toFloat(w.both(scale, integer(kMagnitude)));
  return [=](Value code) -> Value {
    Value level = w.sub(w.differ(code, flip), flip);
    Value share =
        product(arith::SIToFPOp::create(w.b, w.loc, f32, level), step);
    Value square = product(share, share);
    Value magnitude = toBits(product(product(square, square), top));
    return toFloat(w.either(w.both(magnitude, integer(kMagnitude)),
                            w.both(level, integer(kSign))));
  };
}

/// And those of f8_e4m3 (numerics/Float8.cpp).
CodeEmitter::Each CodeEmitter::decodeFloat8(Value scale) const {
  Value factor = toFloat(scale);
  return [=](Value code) -> Value {
    Value magnitude = w.both(code, integer(0x7f));
    Value normal =
        toFloat(w.add(shiftLeft(magnitude, kDropped), integer(kFloat8Bias)));
    Value small = product(arith::SIToFPOp::create(w.b, w.loc, f32, magnitude),
                          number(0x1p-9F));
    Value isSmall = w.isLess(magnitude, integer(8));
    Value bits = toBits(product(w.select(isSmall, small, normal), factor));
    bits = w.select(w.isEqual(magnitude, integer(0x7f)),
                    integer(kInfinity | 0x400000), bits);
    return toFloat(w.either(bits, shiftLeft(w.both(code, integer(0x80)), 24)));
  };
}

/// What the bits of a number that is not below 0 become: `rate` times its
/// fourth root, rounded in the lowest bits of a number.
CodeEmitter::Each CodeEmitter::beginRoots(Value rate) const {
  return [=](Value magnitude) -> Value {
    Value guess = toFloat(w.sub(integer(kGuess), shiftRight(magnitude, 2)));
    Value own =
        product(product(guess, guess), product(toFloat(magnitude), guess));
    Value t = product(own, guess);
    Value power = sum(product(product(number(kSecond), rate), t),
                      product(number(kFirst), rate));
    power = sum(product(power, t), product(number(kZeroth), rate));
    Value found = toBits(product(own, power));
    // Of what is not 0 more than a half, which is rounded to 1.
    Value least = arith::MinUIOp::create(
        w.b, w.loc, w.add(magnitude, integer(kHalf)), integer(kOne));
    return w.max(found, least);
  };
}

/// How a block of numbers, whose largest magnitude has the bits `top`, is
/// encoded in q8.
CodeEmitter::Encoding CodeEmitter::encodeRoot4(const Numbers &values,
                                               Value top) const {
  Value below = integer(0);
  // The sign bit, but for -0.
  for (Value bits : values)
    below = w.either(below, w.both(bits, w.sub(bits, integer(1))));
  below = reduce(below, [&](Value x, Value y) { return w.either(x, y); });
  Value isSigned = w.isLess(below, integer(0));
  Value levels =
      w.select(isSigned, number(kSignedLevels), number(kUnsignedLevels));
  Value sign = w.select(isSigned, integer(kSign), integer(0));
  Value used = w.max(top, integer(kLeastScale));
  Value rate =
      arith::DivFOp::create(w.b, w.loc, levels, root(root(toFloat(used))));
  Each root = beginRoots(rate);
  auto encodeOne = [=](Value bits) -> Value {
    Value found = root(w.both(bits, integer(kMagnitude)));
    found = w.either(found, w.both(bits, sign));
    return toBits(sum(toFloat(found), number(kRounder)));
  };
  return {w.either(used, sign), encodeOne};
}

CodeEmitter::Encoding CodeEmitter::encodeFloat8(const Numbers &,
                                                Value top) const {
  Value share =
      arith::DivFOp::create(w.b, w.loc, toFloat(top), number(kLargestFloat8));
  Value scale = w.both(w.max(toBits(share), integer(kLeastScale)), integer(~7));
  Value rate = arith::DivFOp::create(w.b, w.loc, number(1.0F), toFloat(scale));
  auto encodeOne = [=](Value bits) -> Value {
    Value magnitude = w.both(bits, integer(kMagnitude));
    Value own = product(toFloat(magnitude), rate);
    Value wide = toBits(own);
    // To the nearest, and to even between two: where units are 2^-9, an
    // addition does it.
    Value odd = w.both(shiftRight(wide, kDropped), integer(1));
    Value half = w.add(odd, integer(0x7ffff));
    Value normal =
        shiftRight(w.sub(w.add(wide, half), integer(kFloat8Bias)), kDropped);
    Value small = w.both(toBits(sum(own, number(0x1.8p+14F))), integer(0xff));
    Value isSmall = w.isLess(wide, integer((127 - 6) << 23));
    Value code = w.select(isSmall, small, normal);
    Value sign = w.both(shiftRight(bits, 24), integer(0x80));
    Value isZero = w.isEqual(magnitude, integer(0));
    code = w.either(w.max(code, integer(1)), sign);
    return w.select(isZero, integer(0), code);
  };
  return {scale, encodeOne};
}

/// And in q4 (numerics/FourBits.cpp).
CodeEmitter::Each CodeEmitter::decodeFourBits(Value scale) const {
  Value isSigned = w.isLess(scale, integer(0));
  Value flip = w.select(isSigned, integer(8), integer(0));
  Value step = w.select(isSigned, number(1.0F / kSignedLevels4),
                        number(1.0F / kUnsignedLevels4));
  Value top = toFloat(w.both(scale, integer(kMagnitude)));
  return [=](Value code) -> Value {
    Value level = w.sub(w.differ(code, flip), flip);
    Value share =
        product(arith::SIToFPOp::create(w.b, w.loc, f32, level), step);
    Value square = product(share, share);
    return product(w.select(isSigned, product(square, share), square), top);
  };
}

CodeEmitter::Encoding CodeEmitter::encodeFourBits(const Numbers &values,
                                                  Value top) const {
  Value zero = integer(0), above = zero, below = zero;
  for (Value bits : values) {
    above = w.max(above, bits);
    Value isBelow = w.isLess(bits, zero);
    below = w.max(below,
                  w.select(isBelow, w.both(bits, integer(kMagnitude)), zero));
  }
  auto emitMax = [&](Value x, Value y) { return w.max(x, y); };
  above = reduce(above, emitMax);
  below = reduce(below, emitMax);
  Value used = w.max(top, integer(kLeastScale));
  std::array<Value, kSignedLevels4> limits;
  for (auto [k, limit] : llvm::enumerate(limits)) {
    Value bits = toBits(product(number(getShare(int32_t(k))), toFloat(used)));
    limit = w.both(bits, integer(kLimitBits));
  }
  Value isSigned = w.isLess(limits[0], below);
  Value rate =
      arith::DivFOp::create(w.b, w.loc, root(number(float(kUnsignedLevels4))),
                            root(root(toFloat(used))));
  Each root = beginRoots(rate);
  auto encodeOne = [=](Value bits) -> Value {
    Value magnitude = w.both(bits, integer(kMagnitude)), level = integer(0);
    for (Value limit : limits)
      level = w.add(
          level, w.select(w.isLess(limit, magnitude), integer(1), integer(0)));
    Value sign = w.select(w.isLess(bits, integer(0)), integer(-1), integer(0));
    level = w.sub(w.differ(level, sign), sign);
    Value positive = w.max(bits, integer(0));
    Value mixed =
        arith::MulIOp::create(w.b, w.loc, positive, integer(kDitherFactor));
    mixed = arith::ShRSIOp::create(w.b, w.loc, mixed, integer(16));
    Value dither = product(arith::SIToFPOp::create(w.b, w.loc, f32, mixed),
                           number(kDitherUnit));
    Value half = toFloat(root(positive));
    Value found = sum(product(half, half), dither);
    found = toBits(sum(found, number(kRounder)));
    Value least = arith::MinUIOp::create(w.b, w.loc, positive, integer(1));
    found = w.max(w.both(found, integer(kNibble)), least);
    return w.both(w.select(isSigned, level, found), integer(kNibble));
  };
  // A block of what is below 0, and next to it, is one of zeros.
  Value isNone = w.both(w.isEqual(above, zero),
                        w.isEqual(w.max(limits[0], below), limits[0]));
  Value sign = w.select(isSigned, integer(kSign), zero);
  return {w.select(isNone, zero, w.either(used, sign)), encodeOne};
}
