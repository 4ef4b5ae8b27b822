//===- Float8.h - floats as float8 with scales of blocks --------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The format f8_e4m3 (numerics/Codes.h). A code is a number of float8 e4m3,
// which has 448 as its largest and no infinity, and stands for it times the
// scale S of its block. S is the largest |x| divided by 448, but at least
// 2^-96 where that is not 0, cut to 21 bits: so 448 S is exact, and what was
// decoded has the same S.
//
//   c = the float8 next to x / S, even where two are, at least 2^-9 in
//       magnitude where x is not 0
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NUMERICS_FLOAT8_H
#define STEPC_NUMERICS_FLOAT8_H

#include "numerics/Codes.h"

namespace stepc {

inline constexpr CodeWords kFloat8Words = {1, 8, true};

void decodeFloat8(const CodeRows &rows, int64_t begin, int64_t end,
                  const uint8_t *codes, const float *scales, float *values);
void encodeFloat8(const CodeRows &rows, int64_t begin, int64_t end,
                  const float *values, uint8_t *codes, float *scales);

} // namespace stepc

#endif // STEPC_NUMERICS_FLOAT8_H
