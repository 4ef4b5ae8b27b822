//===- Wide.h - functions for each width of vectors -------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NUMERICS_WIDE_H
#define STEPC_NUMERICS_WIDE_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&         \
    !defined(STEPC_NARROW)
/// Of a function whose loops run along rows: lanes are rows' own elements, so
/// wider vectors compute the same bits.
#define STEPC_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define STEPC_WIDE
#endif

#endif // STEPC_NUMERICS_WIDE_H
