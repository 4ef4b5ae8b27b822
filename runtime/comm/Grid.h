//===- Grid.h - places of ranks, and their groups -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_COMM_GRID_H
#define STEPC_COMM_GRID_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stepc {

/// Ranks on the places of a grid of axes, counted row-major: the last axis is
/// the fastest. A mask of axes has bit k for axis k.
class Grid {
public:
  Grid() = default;
  /// Each size is at least 1, and their product has been found to be no
  /// overflow.
  explicit Grid(std::vector<int64_t> sizes);

  std::size_t getNumAxes() const { return sizes.size(); }
  int64_t getNumPlaces() const { return numPlaces; }
  /// The axes that are larger than 1.
  uint64_t getWideAxes() const { return wideAxes; }
  /// The ranks that differ from this one in these axes alone, in their order.
  std::vector<int64_t> getMembers(int64_t rank, uint64_t axes) const;

private:
  /// The rank of the same group whose coordinates on these axes are 0.
  int64_t getFirst(int64_t rank, uint64_t axes) const;

  std::vector<int64_t> sizes;
  /// How far ranks are apart that differ by 1 on an axis.
  std::vector<int64_t> strides;
  int64_t numPlaces = 1;
  uint64_t wideAxes = 0;
};

} // namespace stepc

#endif // STEPC_COMM_GRID_H
