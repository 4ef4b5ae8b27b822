//===- Grid.cpp - places of ranks, and their groups ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/Grid.h"

#include <utility>

using namespace stepc;

Grid::Grid(std::vector<int64_t> ownSizes)
    : sizes(std::move(ownSizes)), strides(sizes.size()) {
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = numPlaces;
    numPlaces *= sizes[i];
    wideAxes |= uint64_t(sizes[i] > 1) << i;
  }
}

int64_t Grid::getFirst(int64_t rank, uint64_t axes) const {
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (axes >> i & 1)
      rank -= rank / strides[i] % sizes[i] * strides[i];
  return rank;
}

std::vector<int64_t> Grid::getMembers(int64_t rank, uint64_t axes) const {
  std::vector<int64_t> members = {getFirst(rank, axes)};
  // Each axis multiplies the list; from the slowest on, so that it is sorted.
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!(axes >> i & 1))
      continue;
    std::vector<int64_t> wider;
    for (int64_t member : members)
      for (int64_t k = 0; k < sizes[i]; ++k)
        wider.push_back(member + k * strides[i]);
    members = std::move(wider);
  }
  return members;
}
