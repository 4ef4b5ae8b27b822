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
#include "nccl/OwnStream.h"
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
  /// Puts a transfer on a stream of the world's, behind what is on this one,
  /// and returns what finishTransfer() has a stream wait for. Both throw Error.
  cuda::CUevent startTransfer(const StepcTransfer &transfer,
                              cuda::CUstream stream);
  void finishTransfer(cuda::CUevent done, cuda::CUstream stream);
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
  // WorldTransfers.cpp
  void copyOwn(const StepcTransfer &transfer, size_t own,
               cuda::CUstream stream);
  ncclResult_t callAllToAll(const StepcTransfer &transfer, size_t own,
                            const Group &group, cuda::CUstream stream);
  ncclResult_t callAllGather(const StepcTransfer &transfer, const Group &group,
                             cuda::CUstream stream);
  void launchTransfer(const StepcTransfer &transfer, const Group &group,
                      const RoundLog::Entry &entry, cuda::CUstream stream);
  std::string describeTransfer(const RoundLog::Entry &entry) const;
  static bool isFine(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
  }

  std::string describeRanks(uint64_t axes) const;
  std::string describe(const StepcReduceCall &call) const;
  std::string describeRound(const StepcReduceCall &first,
                            int64_t numCalls) const;
  template <typename Body>
  void guard(Body &&body);

  std::shared_ptr<const cuda::Device> device;
  Communicators communicators;
  RoundLog log;
  OwnStream ownStream;
  const Grid grid;
  int64_t rank = 0;
  /// By their axes, which are wide ones.
  std::map<uint64_t, Group> groups;
  std::vector<Part> parts;
  /// What went wrong first; "": nothing did.
  std::string failure;
};

/// Runs `body` and says whose error it is that it throws.
template <typename Body>
void asRank(int64_t rank, Body &&body) {
  try {
    body();
  } catch (const Error &error) {
    throw Error(error.getStatus(),
                "rank " + std::to_string(rank) + ": " + error.what());
  }
}

/// After what goes wrong the others would wait for ever: all is aborted, and
/// the first words say most.
template <typename Body>
void World::guard(Body &&body) {
  if (!failure.empty())
    throw Error(STEPC_COMMUNICATION_ERROR, failure);
  try {
    asRank(rank, [&] {
      cuda::ContextScope scope(*device);
      body();
    });
  } catch (const std::exception &error) {
    failure = error.what();
    communicators.abort();
    throw Error(STEPC_COMMUNICATION_ERROR, failure);
  }
}

} // namespace stepc::nccl

#endif // STEPC_NCCL_WORLD_H
