//===- Root4.cpp - floats as codes of 8 bits in blocks --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "numerics/Root4.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace stepc;

/// What follows is compiled for each of these, whose vectors have all bits
/// alike. A lambda that is not inlined would be for the last.
#define STEPC_EACH_TARGET                                                      \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define STEPC_LAMBDA __attribute__((always_inline))
#define STEPC_INLINE __attribute__((always_inline)) static inline

/// Blocks that are encoded at once, at most.
static constexpr int64_t kRun = 16;
/// Below it the largest code would not decode to the scale.
static constexpr float kLeastScale = 0x1p-96F;
static constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
static constexpr int32_t kMinusZero = INT32_MIN;

static constexpr float getLevels(bool isSigned) {
  return isSigned ? 127.0F : 255.0F;
}

int64_t CodeRows::countBlocks(int64_t index) const {
  int64_t blocksOfRow = (columns + kCodeBlock - 1) / kCodeBlock;
  int64_t place = first + index;
  return place / columns * blocksOfRow +
         (place % columns + kCodeBlock - 1) / kCodeBlock - first / kCodeBlock;
}

STEPC_INLINE int32_t getBits(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

STEPC_INLINE float getFloat(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
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
  // The fourth root is x g^3 t^(-3/4), where t is x g^4: `guess` is so near
  // x^(-1/4) that t is from 0.76 to 0.962, where a polynomial of degree 2 is
  // off by 3.5e-4 of the power.
  constexpr int32_t kGuess = 0x4f50a3d7;
  const float second = 0x1.ffe084p-1F * rate, first = -0x1.5a624ap+1F * rate,
              zeroth = 0x1.5a93a4p+1F * rate;
  // Numbers near it have units of 1, and 0 in their lowest byte.
  constexpr float kRounder = 0x1.8p+23F;
  constexpr uint32_t kHalf = 0x3f000000, kOne = 0x3f800000;
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    int32_t bits = getBits(values[i]) & kMagnitude;
    float x = getFloat(bits);
    float guess = getFloat(kGuess - (bits >> 2));
    float root = guess * guess * (x * guess);
    float t = root * guess;
    int32_t level = getBits(root * ((second * t + first) * t + zeroth));
    // Of what is not 0 more than a half, which is rounded to 1.
    level = std::max(level, int32_t(std::min(uint32_t(bits) + kHalf, kOne)));
    if (Signed)
      level |= getBits(values[i]) & kMinusZero;
    codes[i] = uint8_t(getBits(getFloat(level) + kRounder));
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

/// Calls `visit` for runs of whole blocks and for each short one, with its
/// begin in the part, its blocks and its elements.
template <typename Visit>
STEPC_INLINE void forEachRun(const CodeRows &rows, int64_t begin, int64_t end,
                             Visit &&visit) {
  int64_t column = (rows.first + begin) % rows.columns;
  for (int64_t at = begin; at < end;) {
    int64_t size = std::min(rows.columns - column, end - at);
    const int64_t whole = std::min(size / kCodeBlock, kRun);
    if (whole)
      size = whole * kCodeBlock;
    visit(at, std::max<int64_t>(whole, 1), size);
    at += size;
    column += size;
    if (column == rows.columns)
      column = 0;
  }
}

STEPC_EACH_TARGET void stepc::decodeRoot4(const CodeRows &rows, int64_t begin,
                                          int64_t end, const uint8_t *codes,
                                          const float *scales, float *values) {
  scales += rows.countBlocks(begin);
  auto visit = [&](int64_t at, int64_t blocks, int64_t size) STEPC_LAMBDA {
    float *to = values + (at - begin);
    if (size == blocks * kCodeBlock) {
      decodeBlocks(codes + at, blocks, scales, to);
    } else {
      uint8_t own[kCodeBlock] = {};
      float decoded[kCodeBlock];
      std::memcpy(own, codes + at, size_t(size));
      decodeBlocks(own, 1, scales, decoded);
      std::memcpy(to, decoded, size_t(size) * sizeof(float));
    }
    scales += blocks;
  };
  forEachRun(rows, begin, end, visit);
}

STEPC_EACH_TARGET void stepc::encodeRoot4(const CodeRows &rows, int64_t begin,
                                          int64_t end, const float *values,
                                          uint8_t *codes, float *scales) {
  scales += rows.countBlocks(begin);
  auto visit = [&](int64_t at, int64_t blocks, int64_t size) STEPC_LAMBDA {
    const float *from = values + (at - begin);
    if (size == blocks * kCodeBlock) {
      encodeBlocks(from, blocks, codes + at, scales);
    } else {
      float own[kCodeBlock] = {};
      uint8_t encoded[kCodeBlock];
      std::memcpy(own, from, size_t(size) * sizeof(float));
      encodeBlocks(own, 1, encoded, scales);
      std::memcpy(codes + at, encoded, size_t(size));
    }
    scales += blocks;
  };
  forEachRun(rows, begin, end, visit);
}
