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
/// alike.
#define STEPC_EACH_TARGET                                                      \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define STEPC_INLINE __attribute__((always_inline)) static inline

static constexpr float kUnsignedLevels = 255.0F, kSignedLevels = 127.0F;
/// Below it the largest code would not decode to the scale.
static constexpr float kLeastScale = 0x1p-96F;
static constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;

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

STEPC_INLINE void decodeBlock(const uint8_t *codes, float scale,
                              float *values) {
  const bool isSigned = getBits(scale) < 0;
  // Of a signed code (c ^ 0x80) - 0x80 is the number.
  const int32_t flip = isSigned ? 0x80 : 0;
  const float step = 1.0F / (isSigned ? kSignedLevels : kUnsignedLevels);
  const float top = getFloat(getBits(scale) & kMagnitude);
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    float share = float((int32_t(codes[i]) ^ flip) - flip) * step;
    float square = share * share;
    values[i] = std::copysign(square * square * top, share);
  }
}

/// The largest magnitude's bits, and whether any number is below 0.
STEPC_INLINE int32_t findTop(const float *values, bool &isSigned) {
  int32_t top = 0, below = 0;
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    int32_t bits = getBits(values[i]);
    top = std::max(top, bits & kMagnitude);
    // The sign bit, but for -0.
    below |= bits & int32_t(uint32_t(bits) - 1U);
  }
  isSigned = below < 0;
  return top;
}

STEPC_INLINE float encodeBlock(const float *values, uint8_t *codes) {
  bool isSigned;
  int32_t topBits = findTop(values, isSigned);
  float top = getFloat(topBits);
  if (topBits == 0 || topBits >= kInfinity) {
    std::memset(codes, 0, kCodeBlock);
    return top;
  }
  top = std::max(top, kLeastScale);
  const float share = 1.0F / std::sqrt(top);
  const float levels = isSigned ? kSignedLevels : kUnsignedLevels;
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    float magnitude = std::fabs(values[i]);
    float root = std::sqrt(std::sqrt(magnitude) * share);
    float level = std::max(std::min(std::rint(levels * root), levels), 1.0F);
    level = magnitude > 0.0F ? std::copysign(level, values[i]) : 0.0F;
    codes[i] = uint8_t(int32_t(level));
  }
  return isSigned ? -top : top;
}

/// Calls `visit` for each block, with its begin in the part and its size.
template <typename Visit>
STEPC_INLINE void forEachBlock(const CodeRows &rows, int64_t begin, int64_t end,
                               Visit &&visit) {
  int64_t column = (rows.first + begin) % rows.columns;
  for (int64_t at = begin; at < end;) {
    int64_t size = std::min({kCodeBlock, rows.columns - column, end - at});
    visit(at, size);
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
  forEachBlock(rows, begin, end, [&](int64_t at, int64_t size) {
    float *to = values + (at - begin);
    if (size == kCodeBlock)
      return decodeBlock(codes + at, *scales++, to);
    uint8_t own[kCodeBlock] = {};
    float decoded[kCodeBlock];
    std::memcpy(own, codes + at, size_t(size));
    decodeBlock(own, *scales++, decoded);
    std::memcpy(to, decoded, size_t(size) * sizeof(float));
  });
}

STEPC_EACH_TARGET void stepc::encodeRoot4(const CodeRows &rows, int64_t begin,
                                          int64_t end, const float *values,
                                          uint8_t *codes, float *scales) {
  scales += rows.countBlocks(begin);
  forEachBlock(rows, begin, end, [&](int64_t at, int64_t size) {
    const float *from = values + (at - begin);
    if (size == kCodeBlock) {
      *scales++ = encodeBlock(from, codes + at);
      return;
    }
    float own[kCodeBlock] = {};
    uint8_t encoded[kCodeBlock];
    std::memcpy(own, from, size_t(size) * sizeof(float));
    *scales++ = encodeBlock(own, encoded);
    std::memcpy(codes + at, encoded, size_t(size));
  });
}
