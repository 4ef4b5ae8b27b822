//===- Root4.cpp - floats as codes of 8 bits in blocks --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "numerics/Root4.h"

#include "numerics/FourthRoot.h"

using namespace stepc;
using namespace stepc::codes;

/// Below it the largest code would not decode to the scale.
static constexpr float kLeastScale = 0x1p-96F;

static constexpr float getLevels(bool isSigned) {
  return isSigned ? 127.0F : 255.0F;
}

template <bool Signed>
STEPC_INLINE void decodeAs(const uint8_t *codes, float top, float *values) {
  constexpr float kStep = 1.0F / getLevels(Signed);
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    int32_t number = Signed ? int32_t(int8_t(codes[i])) : int32_t(codes[i]);
    float share = float(number) * kStep;
    float square = share * share;
    float value = square * square * top;
    values[i] = Signed ? std::copysign(value, share) : value;
  }
}

STEPC_INLINE void decodeBlocks(const uint8_t *codes, int64_t count,
                               const float *scales, float *values) {
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t *from = codes + i * kCodeBlock;
    float *to = values + i * kCodeBlock;
    if (getBits(scales[i]) < 0)
      decodeAs<true>(from, -scales[i], to);
    else
      decodeAs<false>(from, scales[i], to);
  }
}

/// The largest magnitude's bits, and whether any number is below 0.
STEPC_INLINE int32_t findTop(const float *values, bool &isSigned) {
  // Where a float's bits have no sign, those of a negative one are larger, the
  // larger its magnitude is; of them -0 is the least.
  int32_t above = 0;
  uint32_t any = 0;
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    int32_t bits = getBits(values[i]);
    above = std::max(above, bits);
    any = std::max(any, uint32_t(bits));
  }
  isSigned = any > uint32_t(kMinusZero);
  return std::max(above, int32_t(any & uint32_t(kMagnitude)));
}

/// Codes of numbers whose level is `rate` times their fourth root.
template <bool Signed>
STEPC_INLINE void encodeAs(const float *values, float rate, uint8_t *codes) {
  const FourthRoot root(rate);
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    int32_t level = root.getLevel(getBits(values[i]) & kMagnitude);
    if (Signed)
      level |= getBits(values[i]) & kMinusZero;
    codes[i] = uint8_t(roundLevel(level));
  }
}

/// Codes and scales of at most kRun blocks. Square roots of their scales are
/// taken side by side, so that no block waits for its own.
STEPC_INLINE void encodeBlocks(const float *values, int64_t count,
                               uint8_t *codes, float *scales) {
  float tops[kRun] = {}, rates[kRun];
  bool isSigned[kRun] = {};
  for (int64_t i = 0; i < count; ++i)
    tops[i] = getFloat(findTop(values + i * kCodeBlock, isSigned[i]));
  for (int64_t i = 0; i < kRun; ++i)
    rates[i] = getLevels(isSigned[i]) /
               std::sqrt(std::sqrt(std::max(tops[i], kLeastScale)));
  for (int64_t i = 0; i < count; ++i) {
    const float *from = values + i * kCodeBlock;
    uint8_t *to = codes + i * kCodeBlock;
    const int32_t bits = getBits(tops[i]);
    if (bits == 0 || bits >= kInfinity) {
      std::memset(to, 0, kCodeBlock);
      scales[i] = tops[i];
      continue;
    }
    const float top = std::max(tops[i], kLeastScale);
    scales[i] = isSigned[i] ? -top : top;
    if (isSigned[i])
      encodeAs<true>(from, rates[i], to);
    else
      encodeAs<false>(from, rates[i], to);
  }
}

namespace {
struct Blocks {
  static constexpr CodeWords kWords = kRoot4Words;
  STEPC_INLINE void decode(const uint8_t *codes, int64_t count,
                           const float *scales, float *values) {
    decodeBlocks(codes, count, scales, values);
  }
  STEPC_INLINE void encode(const float *values, int64_t count, uint8_t *codes,
                           float *scales) {
    encodeBlocks(values, count, codes, scales);
  }
};
} // namespace

STEPC_EACH_TARGET void stepc::decodeRoot4(const CodeRows &rows, int64_t begin,
                                          int64_t end, const uint8_t *codes,
                                          const float *scales, float *values) {
  decodeRows<Blocks>(rows, begin, end, codes, scales, values);
}

STEPC_EACH_TARGET void stepc::encodeRoot4(const CodeRows &rows, int64_t begin,
                                          int64_t end, const float *values,
                                          uint8_t *codes, float *scales) {
  encodeRows<Blocks>(rows, begin, end, values, codes, scales);
}
