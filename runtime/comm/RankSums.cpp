//===- RankSums.cpp - elements of all ranks, combined in their order ------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/RankSums.h"

#include "core/FloatMode.h"

#include <algorithm>
#include <cstring>

using namespace stepc;

static int64_t addDoubles(int64_t lhs, int64_t rhs) {
  double sum, term;
  std::memcpy(&sum, &lhs, sizeof(sum));
  std::memcpy(&term, &rhs, sizeof(term));
  sum += term;
  std::memcpy(&lhs, &sum, sizeof(sum));
  return lhs;
}

// Not inlined: the additions must stay between FloatMode's two ends.
__attribute__((noinline)) static void combine(int32_t reduction,
                                              const int64_t *ranks,
                                              int64_t count, int64_t numRanks,
                                              int64_t *out) {
  for (int64_t i = 0; i < count; ++i) {
    int64_t found = ranks[i];
    for (int64_t other = 1; other < numRanks; ++other) {
      int64_t next = ranks[i + count * other];
      found = reduction == STEPC_MAX_I64 ? std::max(found, next)
                                         : addDoubles(found, next);
    }
    out[i] = found;
  }
}

void stepc::combineRanks(int32_t reduction, const int64_t *ranks, int64_t count,
                         int64_t numRanks, int64_t *out) {
  FloatMode mode;
  combine(reduction, ranks, count, numRanks, out);
}
