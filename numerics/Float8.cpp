//===- Float8.cpp - floats as float8 with scales of blocks ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "numerics/Float8.h"

#include "numerics/CodeBlocks.h"

using namespace stepc;
using namespace stepc::codes;

static constexpr float kLargest = 448.0F, kLeastScale = 0x1p-96F;
/// Of a float8 3 bits are behind the point, and its exponent is 7 more; below
/// 2^-6 its units are 2^-9.
static constexpr int32_t kDropped = 20, kBias = (127 - 7) << 23;
static constexpr float kLeastNormal = 0x1p-6F, kUnit = 0x1p-9F;
static constexpr int32_t kSign = 0x80, kNotANumber = 0x7f;

STEPC_INLINE float decodeOne(uint8_t code, float scale) {
  const int32_t magnitude = code & kNotANumber;
  const float normal = getFloat((magnitude << kDropped) + kBias);
  const float small = float(magnitude) * kUnit;
  float value = (magnitude < 8 ? small : normal) * scale;
  int32_t bits = getBits(value);
  bits = magnitude == kNotANumber ? kInfinity | 0x400000 : bits;
  return getFloat(bits | (code & kSign) << 24);
}

/// `rate` is 1 divided by the scale.
STEPC_INLINE uint8_t encodeOne(float value, float rate) {
  const int32_t bits = getBits(value);
  const int32_t magnitude = bits & kMagnitude;
  const float share = getFloat(magnitude) * rate;
  const int32_t wide = getBits(share);
  // To the nearest, and to even between two: where units are 2^-9, an addition
  // does it.
  const int32_t half = 0x7ffff + (wide >> kDropped & 1);
  const int32_t normal = (wide + half - kBias) >> kDropped;
  const int32_t small = getBits(share + 0x1.8p+14F) & 0xff;
  const int32_t code = share < kLeastNormal ? small : normal;
  const int32_t least = std::min(magnitude, 1);
  const int32_t sign = magnitude ? bits >> 24 & kSign : 0;
  return uint8_t(std::max(code, least) | sign);
}

STEPC_INLINE float encodeBlock(const float *values, uint8_t *codes) {
  int32_t top = 0;
  for (int64_t i = 0; i < kCodeBlock; ++i)
    top = std::max(top, getBits(values[i]) & kMagnitude);
  if (top == 0 || top >= kInfinity) {
    std::memset(codes, 0, kCodeBlock);
    return getFloat(top);
  }
  const float share = std::max(getFloat(top) / kLargest, kLeastScale);
  const float scale = getFloat(getBits(share) & ~7);
  const float rate = 1.0F / scale;
  for (int64_t i = 0; i < kCodeBlock; ++i)
    codes[i] = encodeOne(values[i], rate);
  return scale;
}

namespace {
struct Blocks {
  static constexpr CodeWords kWords = kFloat8Words;
  STEPC_INLINE void decode(const uint8_t *codes, int64_t count,
                           const float *scales, float *values) {
    for (int64_t block = 0; block < count; ++block)
      for (int64_t i = block * kCodeBlock; i < (block + 1) * kCodeBlock; ++i)
        values[i] = decodeOne(codes[i], scales[block]);
  }
  STEPC_INLINE void encode(const float *values, int64_t count, uint8_t *codes,
                           float *scales) {
    for (int64_t i = 0; i < count; ++i)
      scales[i] = encodeBlock(values + i * kCodeBlock, codes + i * kCodeBlock);
  }
};
} // namespace

STEPC_EACH_TARGET void stepc::decodeFloat8(const CodeRows &rows, int64_t begin,
                                           int64_t end, const uint8_t *codes,
                                           const float *scales, float *values) {
  decodeRows<Blocks>(rows, begin, end, codes, scales, values);
}

STEPC_EACH_TARGET void stepc::encodeFloat8(const CodeRows &rows, int64_t begin,
                                           int64_t end, const float *values,
                                           uint8_t *codes, float *scales) {
  encodeRows<Blocks>(rows, begin, end, values, codes, scales);
}
