//===- throwing.cpp - a kernel that fails midway --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Doubles parameters; throws at a parameter that begins with a NaN.
//
//===----------------------------------------------------------------------===//

#include "stepc/kernel_abi.h"

#include <stdexcept>

extern "C" void throwing_scalars(const double *, const double *, int64_t,
                                 int64_t, double *) {}

extern "C" void throwing(const StepcCall *call, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const StepcChunk &chunk = call->chunks[i];
    const int64_t *words = call->table + chunk.row * call->rowWords;
    auto *param = reinterpret_cast<float *>(words[STEPC_ROW_OPERANDS]);
    if (param[chunk.start] != param[chunk.start])
      throw std::runtime_error("as asked");
    for (int64_t k = 0; k < chunk.length; ++k)
      param[chunk.start + k] *= 2.0f;
  }
}

// Of the tiles space; the one that throws does so on a chunk in the middle.

extern "C" void throwing_tiles(const StepcCall *call, int64_t begin,
                               int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    if (call->chunks[i].start >= 100)
      throw std::runtime_error("as asked");
}

extern "C" void quiet_tiles(const StepcCall *, int64_t, int64_t) {}

extern "C" void throwing_finish(const StepcCall *, int64_t) {
  throw std::runtime_error("as asked");
}

extern "C" void quiet_finish(const StepcCall *, int64_t) {}

extern "C" int64_t throwing_round(const double *, const int64_t *,
                                  const double *, const double *, double *,
                                  double *) {
  throw std::runtime_error("as asked");
}
