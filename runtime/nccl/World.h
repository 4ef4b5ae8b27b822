//===- World.h - ranks of NCCL on the places of a grid ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NCCL_WORLD_H
#define STEPC_NCCL_WORLD_H

#include "comm/Grid.h"
#include "nccl/Communicators.h"
#include "nccl/RoundLog.h"

#include <map>
#include <string>
#include <vector>

namespace stepc::nccl {

/// The ranks that differ in some axes alone.
struct Group {
  ncclComm_t comm = nullptr;
  /// In the order of the grid.
  std::vector<int64_t> ranks;
};

/// A rank's place, and what it needs of NCCL to make rounds with the others.
/// After an error it answers every call with that; all its communicators are
/// aborted then.
class World {
public:
  /// With all ranks of the grid, which have the same identifier.
  World(Grid grid, int64_t rank, const ncclUniqueId &id, int32_t device,
        std::chrono::milliseconds deadline);
  /// With communicators of its own made of the caller's, whose ranks are those
  /// of the grid; the caller's is not used afterwards.
  World(Grid grid, ncclComm_t borrowed, std::chrono::milliseconds deadline);
  ~World();
  World(const World &) = delete;
  World &operator=(const World &) = delete;

  int64_t getRank() const { return rank; }
  StepcCommunicator getCommunicator();

  /// Puts a round on the stream. Throws Error.
  void enqueue(const StepcReduceCall *calls, int64_t numCalls,
               cuda::CUstream stream);
  /// Waits for the stream. Throws Error.
  void wait(cuda::CUstream stream);

private:
  /// A call of a round that has other ranks.
  struct Part {
    const StepcReduceCall *call;
    const Group *group;
  };

  void makeGroups(ncclComm_t all, bool ours);
  void takeParts(const StepcReduceCall *calls, int64_t numCalls);
  void launch(cuda::CUstream stream);
  void remember(cuda::CUstream stream);
  std::string describe(const StepcReduceCall &call) const;
  std::string describeRound(const StepcReduceCall &first,
                            int64_t numCalls) const;
  template <typename Body>
  void guard(Body &&body);

  std::shared_ptr<const cuda::Device> device;
  Communicators communicators;
  RoundLog log;
  const Grid grid;
  int64_t rank = 0;
  /// By their axes, which are wide ones.
  std::map<uint64_t, Group> groups;
  std::vector<Part> parts;
  /// What went wrong first; "": nothing did.
  std::string failure;
};

} // namespace stepc::nccl

#endif // STEPC_NCCL_WORLD_H
