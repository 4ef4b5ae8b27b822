//===- RankSums.h - elements of all ranks, combined in their order --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_COMM_RANKSUMS_H
#define STEPC_COMM_RANKSUMS_H

#include "stepc/stepc.h"

#include <cstdint>

namespace stepc {

/// Up to so many elements of all ranks together are gathered everywhere and
/// reduced there; of more each rank reduces a part, which all then gather.
inline constexpr int64_t kWholeElements = 8192;

inline bool isGatheredWhole(int64_t count, int64_t numRanks) {
  return count <= kWholeElements / numRanks;
}

/// Where the part of a rank begins that it reduces, of `count` elements.
inline int64_t getPartBegin(int64_t count, int64_t rank, int64_t numRanks) {
  return count * rank / numRanks;
}

/// Combines what ranks have, from the first to the last, so that all who do it
/// get the same bits: out[i] of ranks[i], ranks[i + count], ... . `out` may be
/// `ranks`. StepcReduction says how.
void combineRanks(int32_t reduction, const int64_t *ranks, int64_t count,
                  int64_t numRanks, int64_t *out);

} // namespace stepc

#endif // STEPC_COMM_RANKSUMS_H
