//===- Communicators.cpp - communicators of NCCL, with a deadline -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "nccl/Communicators.h"

#include "core/Fault.h"

#include <condition_variable>
#include <mutex>
#include <thread>

using namespace stepc;
using namespace stepc::nccl;

/// Aborts under way, each in a thread of its own: one would wait for kernels
/// that are on the stream behind those of another.
struct Communicators::Aborts {
  std::mutex mutex;
  std::condition_variable ended;
  size_t left = 0;

  void end() {
    std::lock_guard<std::mutex> lock(mutex);
    --left;
    ended.notify_all();
  }
};

Communicators::Communicators(std::shared_ptr<const cuda::Device> ownDevice,
                             std::chrono::milliseconds length)
    : device(std::move(ownDevice)), nccl(getNccl()), length(length),
      aborts(std::make_shared<Aborts>()) {}

static ncclConfig_t makeConfig() {
  return {sizeof(ncclConfig_t), kConfigMagic, kConfigVersion, /*blocking=*/0};
}

ncclComm_t Communicators::init(int numRanks, const ncclUniqueId &id, int rank) {
  Deadline deadline(length);
  ncclConfig_t config = makeConfig();
  auto slot = std::make_shared<Slot>();
  auto describe = [&] {
    return "ncclCommInitRankConfig of " + std::to_string(numRanks) + " ranks";
  };
  slots.reserve(slots.size() + 1);
  ncclResult_t result =
      nccl.ncclCommInitRankConfig(&slot->comm, numRanks, id, rank, &config);
  if (slot->comm)
    slots.push_back(slot);
  require(nccl, result, describe);
  requireReady(slot->comm, deadline, describe);
  return slot->comm;
}

ncclComm_t Communicators::split(ncclComm_t parent, int color, int key,
                                const std::string &what) {
  Deadline deadline(length);
  ncclConfig_t config = makeConfig();
  auto describe = [&] { return "ncclCommSplit for " + what; };
  slots.reserve(slots.size() + 1);
  unborn = std::make_shared<Slot>();
  unbornParent = parent;
  ncclResult_t result =
      nccl.ncclCommSplit(parent, color, key, &unborn->comm, &config);
  if (result != ncclSuccess && result != ncclInProgress)
    unborn.reset();
  require(nccl, result, describe);
  // Whatever it returned, the parent says when the other one is there.
  requireReady(parent, deadline, describe);
  slots.push_back(std::move(unborn));
  unbornParent = nullptr;
  ncclComm_t made = slots.back()->comm;
  requireReady(made, deadline, describe);
  return made;
}

ncclResult_t Communicators::getState(ncclComm_t comm) const {
  ncclResult_t state = ncclSuccess;
  require(nccl, nccl.ncclCommGetAsyncError(comm, &state),
          "ncclCommGetAsyncError");
  return state;
}

void Communicators::requireSound() const {
  if (STEPC_FAULT("nccl-errors-unseen"))
    return;
  for (const SlotPtr &slot : slots)
    require(nccl, getState(slot->comm), "another rank or the network failed");
}

bool Communicators::finish() noexcept {
  try {
    cuda::ContextScope scope(*device);
    Deadline deadline(length);
    for (const SlotPtr &slot : slots)
      require(nccl, nccl.ncclCommFinalize(slot->comm), "ncclCommFinalize");
    for (const SlotPtr &slot : slots)
      requireReady(slot->comm, deadline, [] { return "ncclCommFinalize"; });
    while (!slots.empty()) {
      ncclComm_t comm = slots.back()->comm;
      slots.pop_back();
      nccl.ncclCommDestroy(comm);
    }
    return true;
  } catch (const std::exception &) {
    return false;
  }
}

void Communicators::abortOne(const NcclTable &nccl, const cuda::Device &device,
                             ncclComm_t comm) noexcept {
  try {
    cuda::ContextScope scope(device);
    nccl.ncclCommAbort(comm);
  } catch (const std::exception &) {
    // Without its context the device has nothing to end, but the host has.
    nccl.ncclCommAbort(comm);
  }
}

void Communicators::abort() noexcept {
  if ((slots.empty() && !unborn) || STEPC_FAULT("nccl-never-aborts"))
    return;
  aborts->left = slots.size();
  bool parentIsOurs = false;
  for (SlotPtr &slot : slots) {
    bool isParent = unborn && slot->comm == unbornParent;
    parentIsOurs |= isParent;
    auto work = [aborts = aborts, slot, child = isParent ? unborn : nullptr,
                 device = device, &nccl = nccl]() mutable {
      abortOne(nccl, *device, slot->comm);
      // A split ends with its parent. If it was done in that moment, it has
      // left a communicator.
      if (child && child->comm)
        abortOne(nccl, *device, child->comm);
      // Who waits may be about to destroy the context.
      device.reset();
      aborts->end();
    };
    try {
      std::thread(work).detach();
    } catch (const std::exception &) {
      work();
    }
  }
  // One of the caller's is not ours to abort, and NCCL may write until he does.
  if (unborn && !parentIsOurs)
    unborn->self = unborn;
  slots.clear();
  unborn.reset();
  std::unique_lock<std::mutex> lock(aborts->mutex);
  aborts->ended.wait_for(lock, length, [&] { return aborts->left == 0; });
}
