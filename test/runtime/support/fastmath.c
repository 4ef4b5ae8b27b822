//===- fastmath.c - an object that changes the float mode when loaded -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What linking with -ffast-math does with some compilers, written out.
//
//===----------------------------------------------------------------------===//

#include "stepc/kernel_abi.h"

#include <immintrin.h>

__attribute__((constructor)) static void flush(void) {
  _mm_setcsr(_mm_getcsr() | 0x8040);
}

void fastmath_scalars(const double *hypers, const double *results,
                      int64_t count, int64_t fresh, double *row) {
  (void)hypers, (void)results, (void)count, (void)fresh, (void)row;
}

void fastmath(const StepcCall *call, int64_t begin, int64_t end) {
  (void)call, (void)begin, (void)end;
}
