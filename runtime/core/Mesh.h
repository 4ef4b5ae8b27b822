//===- Mesh.h - ranks with coordinates -----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_MESH_H
#define STEPC_CORE_MESH_H

#include "stepc/stepc.h"

#include <string>
#include <vector>

namespace stepc {

/// The grid of ranks, and where this one is in it. Without axes there is this
/// rank alone. A mask of axes has bit k for axis k.
class Mesh {
public:
  Mesh() = default;
  /// Of ranks that do not speak.
  Mesh(const StepcAxis *axes, int64_t numAxes);
  /// Takes the arguments of stepcPlanSetMesh.
  Mesh(const StepcAxis *axes, int64_t numAxes,
       const StepcCommunicator *communicator);

  int64_t getNumAxes() const { return int64_t(names.size()); }
  const std::string &getName(int64_t axis) const { return names[axis]; }

  /// All axes that have more than one rank. Others need no exchange: a group
  /// over them is this rank.
  uint64_t getWideAxes() const { return wideAxes; }
  /// Whether the rank's coordinates on all of these axes are 0.
  bool isFirst(uint64_t axes) const { return (axes & otherAxes) == 0; }

  /// The ranks that differ from this one in these axes alone: how many there
  /// are, and which of them this one is. They are counted row-major over the
  /// axes, the last one fastest: of axes of sizes 2 and 3, rank (1, 0) is 3.
  int64_t getGroupSize(uint64_t axes) const;
  int64_t getGroupRank(uint64_t axes) const;
  /// "'dp', 'tp'"
  std::string describe(uint64_t axes) const;

  const StepcCommunicator &getCommunicator() const { return communicator; }

private:
  std::vector<std::string> names;
  std::vector<int64_t> sizes;
  std::vector<int64_t> coordinates;
  uint64_t wideAxes = 0;
  /// The axes on which the rank's coordinate is not 0.
  uint64_t otherAxes = 0;
  StepcCommunicator communicator = {};
};

} // namespace stepc

#endif // STEPC_CORE_MESH_H
