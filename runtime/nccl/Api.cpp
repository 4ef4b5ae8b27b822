//===- Api.cpp - the C ABI of ranks of NCCL -----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stepc/nccl.h"

#include "core/GiveCommunicator.h"
#include "core/Status.h"
#include "nccl/World.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

using namespace stepc;

/// Groups are made for each set of these.
static constexpr int kMaxWideAxes = 6;
static constexpr int64_t kMaxAxes = 64;
static constexpr int64_t kMaxRanks = 65536;

static_assert(sizeof(StepcNcclUniqueId) == sizeof(nccl::ncclUniqueId));

struct StepcNcclWorld {
  nccl::World world;
};

static Grid makeGrid(const int64_t *axisSizes, int64_t numAxes) {
  if (numAxes > 0 && !axisSizes)
    fail(STEPC_INVALID_ARGUMENT, "%lld axes were given, without sizes",
         static_cast<long long>(numAxes));
  if (numAxes < 0 || numAxes > kMaxAxes)
    fail(STEPC_INVALID_ARGUMENT, "%lld axes were given, the most are %lld",
         static_cast<long long>(numAxes), static_cast<long long>(kMaxAxes));
  int64_t places = 1;
  int wide = 0;
  for (int64_t i = 0; i < numAxes; ++i) {
    if (axisSizes[i] < 1)
      fail(STEPC_INVALID_ARGUMENT, "axis %lld has size %lld, the least is 1",
           static_cast<long long>(i), static_cast<long long>(axisSizes[i]));
    if (axisSizes[i] > kMaxRanks / places)
      fail(STEPC_INVALID_ARGUMENT, "the grid has more than %lld places",
           static_cast<long long>(kMaxRanks));
    places *= axisSizes[i];
    wide += axisSizes[i] > 1;
  }
  if (wide > kMaxWideAxes)
    fail(STEPC_INVALID_ARGUMENT, "%d axes are larger than 1, the most are %d",
         wide, kMaxWideAxes);
  return Grid({axisSizes, axisSizes + numAxes});
}

static std::chrono::milliseconds makeDeadline(int64_t deadlineMs) {
  if (deadlineMs < 1)
    fail(STEPC_INVALID_ARGUMENT, "the deadline is %lld ms, the least is 1",
         static_cast<long long>(deadlineMs));
  return std::chrono::milliseconds(std::min(deadlineMs, kMostMilliseconds));
}

StepcStatus stepcNcclGetUniqueId(StepcNcclUniqueId *out) {
  return guarded([&] {
    requireNotNull(out, "out");
    const nccl::NcclTable &table = nccl::getNccl();
    nccl::ncclUniqueId id = {};
    nccl::require(table, table.ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::memcpy(out, &id, sizeof(id));
  });
}

StepcStatus stepcNcclWorldCreate(const int64_t *axisSizes, int64_t numAxes,
                                 int64_t rank, const StepcNcclUniqueId *id,
                                 int32_t device, int64_t deadlineMs,
                                 StepcNcclWorld **out) {
  return guarded([&] {
    requireNotNull(id, "id");
    requireNotNull(out, "out");
    Grid grid = makeGrid(axisSizes, numAxes);
    if (rank < 0 || rank >= grid.getNumPlaces())
      fail(STEPC_INVALID_ARGUMENT,
           "rank %lld does not exist, the grid has %lld places",
           static_cast<long long>(rank),
           static_cast<long long>(grid.getNumPlaces()));
    nccl::ncclUniqueId ownId;
    std::memcpy(&ownId, id, sizeof(ownId));
    *out = new StepcNcclWorld{
        {std::move(grid), rank, ownId, device, makeDeadline(deadlineMs)}};
  });
}

StepcStatus stepcNcclWorldBorrow(const int64_t *axisSizes, int64_t numAxes,
                                 void *comm, int64_t deadlineMs,
                                 StepcNcclWorld **out) {
  return guarded([&] {
    requireNotNull(comm, "comm");
    requireNotNull(out, "out");
    *out = new StepcNcclWorld{{makeGrid(axisSizes, numAxes),
                               static_cast<nccl::ncclComm_t>(comm),
                               makeDeadline(deadlineMs)}};
  });
}

int64_t stepcNcclWorldGetRank(const StepcNcclWorld *world) {
  return world->world.getRank();
}

StepcStatus stepcNcclWorldGetCommunicator(StepcNcclWorld *world,
                                          StepcCommunicator *out) {
  return guarded([&] {
    requireNotNull(world, "world");
    requireNotNull(out, "out");
    // Callers of the first version say nothing of their room: what is there may
    // be anything.
    constexpr size_t kLeast = offsetof(StepcCommunicator, success),
                     kMost = 4096;
    size_t room = out->structSize > kMost ? kLeast : out->structSize;
    giveCommunicator(world->world.getCommunicator(), std::max(room, kLeast),
                     out);
  });
}

void stepcNcclWorldDestroy(StepcNcclWorld *world) { delete world; }
