//===- FourthRoot.h - fourth roots in levels of codes -----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Without a square root for each number: a guess from its bits, and a
// polynomial. Off by 3.5e-4 of the root at most.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NUMERICS_FOURTHROOT_H
#define STEPC_NUMERICS_FOURTHROOT_H

#include "numerics/CodeBlocks.h"

namespace stepc::codes {

/// Levels are `rate` times the fourth roots of numbers.
class FourthRoot {
public:
  STEPC_LAMBDA explicit FourthRoot(float rate)
      : second(0x1.ffe084p-1F * rate), first(-0x1.5a624ap+1F * rate),
        zeroth(0x1.5a93a4p+1F * rate) {}

  /// The bits of a number's level, from the number's, which is not below 0. Of
  /// what is not 0 it is more than a half, which is rounded to 1.
  STEPC_LAMBDA int32_t getLevel(int32_t bits) const {
    // The fourth root is x g^3 t^(-3/4), where t is x g^4: `guess` is so near
    // x^(-1/4) that t is from 0.76 to 0.962, where a polynomial of degree 2 is
    // off by 3.5e-4 of the power.
    constexpr int32_t kGuess = 0x4f50a3d7;
    constexpr uint32_t kHalf = 0x3f000000, kOne = 0x3f800000;
    float x = getFloat(bits);
    float guess = getFloat(kGuess - (bits >> 2));
    float root = guess * guess * (x * guess);
    float t = root * guess;
    int32_t level = getBits(root * ((second * t + first) * t + zeroth));
    return std::max(level, int32_t(std::min(uint32_t(bits) + kHalf, kOne)));
  }

private:
  float second, first, zeroth;
};

/// Rounds a level, whose bits these are, to the lowest bits of an integer.
STEPC_INLINE int32_t roundLevel(int32_t level) {
  // Numbers near it have units of 1, and 0 in their lowest byte.
  return getBits(getFloat(level) + 0x1.8p+23F);
}

} // namespace stepc::codes

#endif // STEPC_NUMERICS_FOURTHROOT_H
