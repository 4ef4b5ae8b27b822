//===- Root4.h - floats as codes of 8 bits in blocks ------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The format q8 (docs/states.md). A block is up to kCodeBlock floats x with one
// scale A, the largest |x|, but at least 2^-96 where it is not 0; the code is
// the fourth root of x's share of A, in steps of 1/255:
//
//   c = 255 (|x| / A)^(1/4), rounded, at least 1 where x is not 0
//   x = (c / 255)^4 A
//
// The root is that of FourthRoot.h, without a square root for each x: it is off
// by 3.5e-4 at most, less than a tenth of a step.
//
// A block with a number below 0 has steps of 1/127 and the sign in the code, in
// two's complement; the sign bit of its scale is set. With an infinity or a NaN
// codes are 0, and A says which: all of the block is NaN then. Each operation
// is rounded to f32 as IEEE 754 says, in the order of the code: the bits are
// the same on every processor. What was decoded is encoded to the same codes
// and scale.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NUMERICS_ROOT4_H
#define STEPC_NUMERICS_ROOT4_H

#include "numerics/Codes.h"

namespace stepc {

inline constexpr CodeWords kRoot4Words = {1, 8, false};

void decodeRoot4(const CodeRows &rows, int64_t begin, int64_t end,
                 const uint8_t *codes, const float *scales, float *values);
void encodeRoot4(const CodeRows &rows, int64_t begin, int64_t end,
                 const float *values, uint8_t *codes, float *scales);

} // namespace stepc

#endif // STEPC_NUMERICS_ROOT4_H
