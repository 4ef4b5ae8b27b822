//===- CodeBlocks.h - loops over blocks of codes ----------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the formats' files have in common: `Blocks` of one decodes and encodes
// at most kRun whole blocks.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NUMERICS_CODEBLOCKS_H
#define STEPC_NUMERICS_CODEBLOCKS_H

#include "numerics/Codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

/// What follows is compiled for each of these, whose vectors have all bits
/// alike. A lambda that is not inlined would be for the last.
#define STEPC_EACH_TARGET                                                      \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define STEPC_LAMBDA __attribute__((always_inline))
#define STEPC_INLINE __attribute__((always_inline)) static inline

namespace stepc::codes {

/// Blocks that are encoded at once, at most.
inline constexpr int64_t kRun = 16;
inline constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
inline constexpr int32_t kMinusZero = INT32_MIN;

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

/// Calls `visit` for runs of whole blocks and for each short one, with its
/// begin in the part, its blocks and its elements.
template <typename Visit>
STEPC_INLINE void forEachRun(const CodeRows &rows, int64_t begin, int64_t end,
                             Visit &&visit) {
  int64_t column = (rows.first + begin) % rows.columns;
  for (int64_t at = begin; at < end;) {
    int64_t size = std::min(rows.columns - column, end - at);
    if (const int64_t inside = (rows.phase + column) % kCodeBlock)
      size = std::min(size, kCodeBlock - inside);
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

template <typename Blocks>
STEPC_INLINE void decodeRows(const CodeRows &rows, int64_t begin, int64_t end,
                             const uint8_t *codes, const float *scales,
                             float *values) {
  constexpr CodeWords kWords = Blocks::kWords;
  scales += rows.countBlocks(begin);
  codes += rows.countBytes(kWords, begin);
  auto visit = [&](int64_t at, int64_t blocks, int64_t size) STEPC_LAMBDA {
    float *to = values + (at - begin);
    const int64_t bytes = kWords.count(size) * kWords.getBytes();
    if (size == blocks * kCodeBlock) {
      Blocks::decode(codes, blocks, scales, to);
    } else {
      uint8_t own[kCodeBlock] = {};
      float decoded[kCodeBlock];
      std::memcpy(own, codes, size_t(bytes));
      Blocks::decode(own, 1, scales, decoded);
      std::memcpy(to, decoded, size_t(size) * sizeof(float));
    }
    scales += blocks;
    codes += bytes;
  };
  forEachRun(rows, begin, end, visit);
}

template <typename Blocks>
STEPC_INLINE void encodeRows(const CodeRows &rows, int64_t begin, int64_t end,
                             const float *values, uint8_t *codes,
                             float *scales) {
  constexpr CodeWords kWords = Blocks::kWords;
  scales += rows.countBlocks(begin);
  codes += rows.countBytes(kWords, begin);
  auto visit = [&](int64_t at, int64_t blocks, int64_t size) STEPC_LAMBDA {
    const float *from = values + (at - begin);
    const int64_t bytes = kWords.count(size) * kWords.getBytes();
    if (size == blocks * kCodeBlock) {
      Blocks::encode(from, blocks, codes, scales);
    } else {
      float own[kCodeBlock] = {};
      uint8_t encoded[kCodeBlock];
      std::memcpy(own, from, size_t(size) * sizeof(float));
      Blocks::encode(own, 1, encoded, scales);
      std::memcpy(codes, encoded, size_t(bytes));
    }
    scales += blocks;
    codes += bytes;
  };
  forEachRun(rows, begin, end, visit);
}

} // namespace stepc::codes

#endif // STEPC_NUMERICS_CODEBLOCKS_H
