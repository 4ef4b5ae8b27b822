//===- FourBits.cpp - floats as codes of 4 bits in blocks -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "numerics/FourBits.h"

#include "numerics/FourthRoot.h"

#include <array>
#include <utility>

using namespace stepc;
using namespace stepc::codes;

/// Below it the largest code would not decode to the scale.
static constexpr float kLeastScale = 0x1p-96F;
static constexpr int64_t kBlockBytes = kCodeBlock / 2;
static constexpr int kSignedLevels = 7, kUnsignedLevels = 15;
/// The lower bits of a float, which are not compared.
static constexpr int kCut = 16;

/// Shares of a block's largest number, beyond which a level begins: the middle
/// of two levels' cubes.
static constexpr auto makeShares() {
  std::array<float, kSignedLevels> shares = {};
  for (int k = 0; k < kSignedLevels; ++k) {
    const int cubes = k * k * k + (k + 1) * (k + 1) * (k + 1);
    shares[size_t(k)] = float(cubes / (2.0 * 7 * 7 * 7));
  }
  return shares;
}
static constexpr auto kShares = makeShares();

template <bool Signed>
STEPC_INLINE void decodeAs(const uint8_t *codes, float top, float *values) {
  constexpr float kStep =
      1.0F / float(Signed ? kSignedLevels : kUnsignedLevels);
  constexpr int32_t kSign = Signed ? 8 : 0;
  uint8_t nibbles[kCodeBlock];
  for (int64_t i = 0; i < kBlockBytes; ++i) {
    const uint32_t two = codes[i];
    const auto apart = uint16_t((two | two << 4) & 0x0f0f);
    std::memcpy(nibbles + 2 * i, &apart, sizeof(apart));
  }
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    const int32_t number = (int32_t(nibbles[i]) ^ kSign) - kSign;
    const float share = float(number) * kStep;
    const float square = share * share;
    values[i] = (Signed ? square * share : square) * top;
  }
}

/// The bits of the largest number above 0, and those of the largest magnitude
/// below; 0: there is none.
struct Tops {
  int32_t above = 0;
  int32_t below = 0;
};

STEPC_INLINE Tops findTops(const float *values) {
  // Of floats below 0 the bits are larger, the larger its magnitude is; of them
  // -0 is the least.
  int32_t above = 0;
  uint32_t any = 0;
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    int32_t bits = getBits(values[i]);
    above = std::max(above, bits);
    any = std::max(any, uint32_t(bits));
  }
  return {above, any > uint32_t(kMinusZero) ? int32_t(any & kMagnitude) : 0};
}

/// How many of the limits are below the number.
template <size_t... K>
STEPC_INLINE int16_t countLimits(int16_t head, const int16_t *limits,
                                 std::index_sequence<K...>) {
  return int16_t((int16_t(head > limits[K]) + ...));
}

STEPC_INLINE void pack(const uint8_t *levels, uint8_t *codes) {
  for (int64_t i = 0; i < kBlockBytes; ++i) {
    uint16_t two;
    std::memcpy(&two, levels + 2 * i, sizeof(two));
    codes[i] = uint8_t((two & 15) | two >> 4);
  }
}

/// The bits of a limit, of which the lower ones are 0.
STEPC_INLINE int32_t getLimit(size_t k, float top) {
  return getBits(kShares[k] * top) >> kCut << kCut;
}

STEPC_INLINE void encodeSigned(const float *values, float top, uint8_t *codes) {
  int16_t limits[kSignedLevels], heads[kCodeBlock];
  for (size_t k = 0; k < kShares.size(); ++k)
    limits[k] = int16_t(getLimit(k, top) >> kCut);
  // What is beyond a limit has a larger head, rounded up.
  for (int64_t i = 0; i < kCodeBlock; ++i)
    heads[i] = int16_t(
        ((getBits(values[i]) & kMagnitude) + ((1 << kCut) - 1)) >> kCut);
  uint8_t levels[kCodeBlock];
  for (int64_t i = 0; i < kCodeBlock; ++i)
    levels[i] = uint8_t(countLimits(heads[i], limits,
                                    std::make_index_sequence<kSignedLevels>()));
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    const auto sign = uint8_t(getBits(values[i]) >> 31);
    levels[i] = uint8_t((levels[i] ^ sign) - sign) & 15;
  }
  pack(levels, codes);
}

/// What is added to a level before it is rounded, so that a number between two
/// becomes either as often as it is near, as a product of its bits says. It is
/// less than a half by more than what a level is off by: what was decoded
/// stays.
STEPC_INLINE float getDither(int32_t bits) {
  const auto mixed = int32_t(uint32_t(bits) * 0x9e3779b1U) >> 16;
  return float(mixed) * (0.97F / 0x1p+16F);
}

/// What is below 0 is 0.
STEPC_INLINE void encodeUnsigned(const float *values, float rate,
                                 uint8_t *codes) {
  const FourthRoot root(rate);
  uint8_t levels[kCodeBlock];
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    const int32_t bits = std::max(getBits(values[i]), 0);
    const float half = getFloat(root.getLevel(bits));
    const float level = half * half + getDither(bits);
    const int32_t code = roundLevel(getBits(level)) & 15;
    levels[i] = uint8_t(std::max(code, std::min(bits, 1)));
  }
  pack(levels, codes);
}

/// Codes and scales of blocks with these tops, at most kRun. Square roots of
/// their scales are taken side by side, so that no block waits for its own.
STEPC_INLINE void encodeBlocks(const float *values, int64_t count,
                               const Tops *tops, uint8_t *codes,
                               float *scales) {
  float used[kRun] = {}, rates[kRun];
  for (int64_t i = 0; i < count; ++i)
    used[i] = getFloat(std::max(tops[i].above, tops[i].below));
  for (int64_t i = 0; i < kRun; ++i)
    rates[i] = std::sqrt(float(kUnsignedLevels)) /
               std::sqrt(std::sqrt(std::max(used[i], kLeastScale)));
  for (int64_t i = 0; i < count; ++i) {
    const float *from = values + i * kCodeBlock;
    uint8_t *to = codes + i * kBlockBytes;
    const float top = std::max(used[i], kLeastScale);
    const bool isNumber = getBits(used[i]) < kInfinity;
    const bool isSigned = tops[i].below > getLimit(0, top);
    if (!isNumber || (!isSigned && tops[i].above == 0)) {
      std::memset(to, 0, kBlockBytes);
      scales[i] = isNumber ? 0.0F : used[i];
      continue;
    }
    scales[i] = isSigned ? -top : top;
    if (isSigned)
      encodeSigned(from, top, to);
    else
      encodeUnsigned(from, rates[i], to);
  }
}

namespace {
struct Blocks {
  static constexpr CodeWords kWords = kFourBitsWords;

  STEPC_INLINE void decode(const uint8_t *codes, int64_t count,
                           const float *scales, float *values) {
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t *from = codes + i * kBlockBytes;
      float *to = values + i * kCodeBlock;
      if (getBits(scales[i]) < 0)
        decodeAs<true>(from, -scales[i], to);
      else
        decodeAs<false>(from, scales[i], to);
    }
  }
  STEPC_INLINE void encode(const float *values, int64_t count, uint8_t *codes,
                           float *scales) {
    Tops tops[kRun];
    for (int64_t i = 0; i < count; ++i)
      tops[i] = findTops(values + i * kCodeBlock);
    encodeBlocks(values, count, tops, codes, scales);
  }
};
} // namespace

STEPC_EACH_TARGET void stepc::decodeFourBits(const CodeRows &rows,
                                             int64_t begin, int64_t end,
                                             const uint8_t *codes,
                                             const float *scales,
                                             float *values) {
  decodeRows<Blocks>(rows, begin, end, codes, scales, values);
}

STEPC_EACH_TARGET void stepc::encodeFourBits(const CodeRows &rows,
                                             int64_t begin, int64_t end,
                                             const float *values,
                                             uint8_t *codes, float *scales) {
  encodeRows<Blocks>(rows, begin, end, values, codes, scales);
}
