//===- World.cpp - ranks of NCCL on the places of a grid ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "nccl/World.h"

#include "comm/CallCheck.h"
#include "comm/Describe.h"
#include "comm/Tell.h"
#include "core/Fault.h"

#include <cstddef>
#include <cstdio>

using namespace stepc;
using namespace stepc::cuda;
using namespace stepc::nccl;

/// The device of a communicator, in the primary context, as NCCL has it.
static std::shared_ptr<const Device> openDeviceOf(ncclComm_t comm) {
  const NcclTable &nccl = getNccl();
  int ordinal = -1;
  nccl::require(nccl, nccl.ncclCommCuDevice(comm, &ordinal),
                "ncclCommCuDevice");
  return std::make_shared<const Device>(ordinal, nullptr);
}

World::World(Grid ownGrid, int64_t rank, const ncclUniqueId &id,
             int32_t ordinal, std::chrono::milliseconds deadline)
    : device(std::make_shared<const Device>(ordinal, nullptr)),
      communicators(device, deadline), log(device), ownStream(device),
      grid(std::move(ownGrid)), rank(rank) {
  if (grid.getNumPlaces() == 1)
    return;
  asRank(rank, [&] {
    ContextScope scope(*device);
    makeGroups(communicators.init(int(grid.getNumPlaces()), id, int(rank)),
               /*ours=*/true);
  });
}

World::World(Grid ownGrid, ncclComm_t borrowed,
             std::chrono::milliseconds deadline)
    : device(openDeviceOf(borrowed)), communicators(device, deadline),
      log(device), ownStream(device), grid(std::move(ownGrid)) {
  ContextScope scope(*device);
  const NcclTable &nccl = communicators.getTable();
  int numRanks = 0, ownRank = 0;
  nccl::require(nccl, nccl.ncclCommCount(borrowed, &numRanks), "ncclCommCount");
  nccl::require(nccl, nccl.ncclCommUserRank(borrowed, &ownRank),
                "ncclCommUserRank");
  if (numRanks != grid.getNumPlaces())
    fail(STEPC_INVALID_ARGUMENT,
         "the grid has %lld places, the communicator has %d ranks",
         static_cast<long long>(grid.getNumPlaces()), numRanks);
  rank = ownRank;
  asRank(rank, [&] { makeGroups(borrowed, /*ours=*/false); });
}

World::~World() {
  // Otherwise they are aborted.
  if (failure.empty())
    communicators.finish();
}

/// " of ranks [0, 2]". Of many only some are named, " of ranks [0, 1, ..., 255]
/// (256 in all)": what messages say behind them is not to be cut off.
static std::string describeMembers(const nccl::Group &group) {
  constexpr size_t kShown = 8;
  size_t size = group.ranks.size();
  // One that is left out would be as long as the dots.
  bool whole = size <= kShown + 2;
  std::string text;
  for (size_t i = 0; i < (whole ? size : kShown); ++i)
    text += (text.empty() ? "" : ", ") + std::to_string(group.ranks[i]);
  if (!whole)
    text += ", ..., " + std::to_string(group.ranks.back());
  text = " of ranks [" + text + "]";
  return whole ? text : text + " (" + std::to_string(size) + " in all)";
}

/// All subsets of the wide axes, in the same order on all ranks. They are made
/// ahead: in a step only some ranks may come to make one.
void World::makeGroups(ncclComm_t all, bool ours) {
  uint64_t wide = grid.getWideAxes();
  for (uint64_t axes = wide; axes != 0; axes = (axes - 1) & wide) {
    nccl::Group &group = groups[axes];
    group.ranks = grid.getMembers(rank, axes);
    group.comm =
        ours && axes == wide
            ? all
            : communicators.split(all, int(group.ranks.front()), int(rank),
                                  describeAxes(axes) + describeMembers(group));
    if (STEPC_FAULT("nccl-groups-are-the-world"))
      group.comm = groups[wide].comm;
  }
}

std::string World::describeRanks(uint64_t axes) const {
  return describeMembers(groups.at(axes));
}

std::string World::describe(const StepcReduceCall &call) const {
  return describeCall(call) + describeRanks(call.axes & grid.getWideAxes());
}

std::string World::describeRound(const StepcReduceCall &first,
                                 int64_t numCalls) const {
  std::string text = describe(first);
  if (numCalls > 1)
    text += " and " + std::to_string(numCalls - 1) + " more";
  return text;
}

void World::takeParts(const StepcReduceCall *calls, int64_t numCalls) {
  parts.clear();
  for (int64_t i = 0; i < numCalls; ++i) {
    const StepcReduceCall &call = calls[i];
    std::string fault = findCallFault(call, i, grid.getNumAxes());
    if (!fault.empty())
      throw Error(STEPC_COMMUNICATION_ERROR, fault);
    uint64_t axes = call.axes & grid.getWideAxes();
    if (axes && call.count > 0)
      parts.push_back({&call, &groups.at(axes)});
  }
}

void World::enqueue(const StepcReduceCall *calls, int64_t numCalls,
                    CUstream stream) {
  guard([&] {
    takeParts(calls, numCalls);
    communicators.requireSound();
    if (parts.empty())
      return;
    launch(stream);
    remember(stream);
  });
}

void World::launch(CUstream stream) {
  const NcclTable &nccl = communicators.getTable();
  auto describeEnd = [&] {
    return "ncclGroupEnd of " +
           describeRound(*parts[0].call, int64_t(parts.size()));
  };
  Deadline deadline(communicators.getLength());
  nccl::require(nccl, nccl.ncclGroupStart(), "ncclGroupStart");
  for (const Part &part : parts) {
    const StepcReduceCall &call = *part.call;
    bool sum = call.reduction == STEPC_SUM_F64;
    ncclResult_t result = nccl.ncclAllReduce(
        call.data, call.data, size_t(call.count), sum ? ncclFloat64 : ncclInt64,
        sum ? ncclSum : ncclMax, part.group->comm, stream);
    if (result == ncclSuccess || result == ncclInProgress)
      continue;
    std::string words = describeResult(nccl, result);
    // Else what this thread calls next would be part of the group.
    nccl.ncclGroupEnd();
    fail(STEPC_COMMUNICATION_ERROR, "ncclAllReduce of %s: %s",
         describe(call).c_str(), words.c_str());
  }
  nccl::require(nccl, nccl.ncclGroupEnd(), describeEnd);
  // What is behind the round must be enqueued after it.
  if (STEPC_FAULT("nccl-group-not-awaited"))
    return;
  for (const Part &part : parts)
    communicators.requireReady(part.group->comm, deadline, describeEnd);
}

/// What a graph has is enqueued when it is launched, which nobody tells.
void World::remember(CUstream stream) {
  if (!cuda::isCapturing(*device, stream))
    log.add(*parts[0].call, int64_t(parts.size()), stream);
}

void World::wait(CUstream stream) {
  guard([&] {
    Deadline deadline(communicators.getLength());
    for (;;) {
      CUresult result = device->getDriver().cuStreamQuery(stream);
      // First, since then what was done may be worth nothing.
      communicators.requireSound();
      if (result == CUDA_SUCCESS)
        return;
      if (result != CUDA_ERROR_NOT_READY)
        device->require(result, "cuStreamQuery");
      if (deadline.isOver())
        break;
      deadline.pause();
    }
    const RoundLog::Entry *entry = log.getOldest();
    std::string what = !entry ? "the work on the stream"
                       : entry->transferKind >= 0
                           ? describeTransfer(*entry)
                           : describeRound(entry->call, entry->numCalls);
    fail(STEPC_COMMUNICATION_ERROR, "%s did not end within %lld ms",
         what.c_str(),
         static_cast<long long>(communicators.getLength().count()));
  });
}

StepcCommunicator World::getCommunicator() {
  StepcCommunicator communicator = {};
  communicator.structSize = sizeof(communicator);
  communicator.context = this;
  communicator.reduce = [](void *, const StepcReduceCall *, int64_t,
                           char *message, size_t messageSize) -> int32_t {
    std::snprintf(message, messageSize,
                  "the communicator of NCCL is for plans on CUDA devices");
    return 1;
  };
  communicator.enqueue = [](void *context, const StepcReduceCall *calls,
                            int64_t numCalls, void *stream, char *message,
                            size_t messageSize) {
    return tell(message, messageSize, [&] {
      static_cast<World *>(context)->enqueue(calls, numCalls,
                                             static_cast<CUstream>(stream));
    });
  };
  communicator.wait = [](void *context, void *stream, char *message,
                         size_t messageSize) {
    return tell(message, messageSize, [&] {
      static_cast<World *>(context)->wait(static_cast<CUstream>(stream));
    });
  };
  communicator.enqueueStart = [](void *context, const StepcTransfer *transfer,
                                 void *stream, void **outWork, char *message,
                                 size_t messageSize) {
    return tell(message, messageSize, [&] {
      *outWork = static_cast<World *>(context)->startTransfer(
          *transfer, static_cast<CUstream>(stream));
    });
  };
  communicator.enqueueFinish = [](void *context, void *work, void *stream,
                                  char *message, size_t messageSize) {
    return tell(message, messageSize, [&] {
      static_cast<World *>(context)->finishTransfer(
          static_cast<CUevent>(work), static_cast<CUstream>(stream));
    });
  };
  return communicator;
}
