//===- FourBits.h - floats as codes of 4 bits in blocks ---------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The format q4 (docs/states.md). A block is up to kCodeBlock floats x with one
// scale A, the largest |x|, but at least 2^-96 where it is not 0:
//
//   none is below 0   x = (c / 15)^2 A   c: 15 (x / A)^(1/2), rounded to either
//                                        side; at least 1 where x is not 0
//   some are          x = (c / 7)^3 A    the next of these numbers; c has x's
//                                        sign, in two's complement
//
// In the first row c is the larger of two the more often, the nearer it is, as
// bits of x say: a second moment moves by less than half a level in a step, and
// would stand still. The sign bit of the scale says which. A number below 0
// that is next to 0 in the second row is 0, and makes no block one of it. There
// no root is taken: a code is the number of limits below |x|, which are A's
// shares, cut to the upper 16 bits of an f32; so what lies in the middle of two
// levels goes to the larger one a little early.
//
// With an infinity or a NaN codes are 0, and A says which: all of the block is
// NaN then. The bits are the same on every processor; what was decoded is
// encoded to the same codes and scale.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NUMERICS_FOURBITS_H
#define STEPC_NUMERICS_FOURBITS_H

#include "numerics/Codes.h"

namespace stepc {

/// Of 32 bits, which collectives of Gloo and of NCCL carry, as they do not
/// those of 16.
inline constexpr CodeWords kFourBitsWords = {8, 32, true};

void decodeFourBits(const CodeRows &rows, int64_t begin, int64_t end,
                    const uint8_t *codes, const float *scales, float *values);
void encodeFourBits(const CodeRows &rows, int64_t begin, int64_t end,
                    const float *values, uint8_t *codes, float *scales);

} // namespace stepc

#endif // STEPC_NUMERICS_FOURBITS_H
