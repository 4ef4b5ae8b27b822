//===- State.h - what the double of NCCL keeps --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_TEST_NCCL_DOUBLE_STATE_H
#define STEPC_TEST_NCCL_DOUBLE_STATE_H

#include "nccl/NcclTypes.h"

#include "../cuda_double/State.h"

#include <functional>

namespace nccl_double {

using namespace stepc::nccl;

/// Communicators live as long as kernels of theirs do.
using CommPtr = std::shared_ptr<ncclComm>;

/// What is in progress for some communicators of a rank.
struct Job {
  /// How often it is asked for in vain.
  int64_t polls = 0;
  std::vector<CommPtr> comms;
  std::function<bool()> isReady;
  std::function<void()> finish;
};

/// A call of a group.
struct Reduction {
  enum class Kind { AllReduce, AllGather, Broadcast, Send, Receive };

  const void *from;
  void *to;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t operation;
  Kind kind = Kind::AllReduce;
  /// The root, or the other rank.
  int32_t peer = -1;

  size_t getBytes() const { return count * (type == ncclInt8 ? 1 : 8); }
};

/// Kernels of all ranks that belong together.
struct Meeting {
  /// Of each rank; null as long as its kernel has not begun.
  std::vector<const std::vector<Reduction> *> ranks;
  int32_t begun = 0;
  int32_t ended = 0;
  bool complete = false;
  /// Never ends: the ranks differ, or one was aborted.
  bool dead = false;
  /// Of each rank what each of its calls writes; of what reads alone nothing.
  std::vector<std::vector<std::string>> results;
};

/// A communicator is split by all its ranks.
struct Split {
  struct Request {
    int32_t color, key;
  };
  std::map<int32_t, Request> ranks;
  /// By color.
  std::map<int32_t, std::shared_ptr<struct Clique>> children;
};

/// All ranks of a communicator.
struct Clique {
  int32_t size = 0;
  /// Those that have come, by their ranks.
  std::map<int32_t, ncclComm *> members;
  /// A rank was aborted.
  bool broken = false;
  /// Ranks that are finalized or aborted.
  int32_t left = 0;
  /// Those that have begun a group.
  std::set<int32_t> connecting;
  std::map<int64_t, Meeting> meetings;
  std::map<int64_t, Split> splits;
};

struct State {
  std::map<std::string, int64_t> calls;
  std::string failingName;
  int64_t failingIn = 0;
  int32_t failingWith = 0;
  std::map<ncclComm *, CommPtr> comms;
  /// By their identifiers, until all have come.
  std::map<std::string, std::shared_ptr<Clique>> inits;
  std::set<std::string> usedIds;
  int64_t ids = 0;
  bool tellAborts = false;
  bool connectLazily = false;
  std::string fault;
  std::string lastError;
};

// The functions are those that the runtime looks for.
extern "C" {
#define STEPC_NCCL_SYMBOL(name, result, parameters) result name parameters;
#include "nccl/NcclSymbols.def"
}

/// Under the mutex of the driver's double, as all of this.
State &getState();

/// Counts a call; what it returns before it does anything, or 0.
ncclResult_t enter(const char *function);
/// Notes a fault; the first says most.
ncclResult_t noteFault(const std::string &words,
                       ncclResult_t result = ncclInvalidArgument);
/// The communicator of a handle; null, with a fault noted, where it is gone.
CommPtr find(ncclComm *comm, const char *function);
/// Whether something is in progress, in which it must not be used.
bool isBusy(const ncclComm &comm);
/// Has the job in progress for its communicators; waits for it where they are
/// blocking.
ncclResult_t start(std::shared_ptr<Job> job);
/// What the communicator reports, after a poll of its job.
ncclResult_t poll(ncclComm &comm);

} // namespace nccl_double

struct ncclComm {
  std::shared_ptr<nccl_double::Clique> clique;
  int32_t rank = 0;
  /// In the communicator that it is split of, or that of.
  int32_t firstRank = 0;
  cuda_double::CUcontext context = nullptr;
  bool blocking = true;
  /// That it reports.
  int32_t error = 0;
  std::shared_ptr<nccl_double::Job> job;
  /// Kernels that are on streams, and those that have ended.
  int64_t enqueued = 0;
  int64_t ended = 0;
  /// Kernels in graphs.
  int64_t captured = 0;
  int64_t splits = 0;
  bool finalized = false;
  bool aborted = false;
};

/// Begins each function: locks, counts, fails on demand.
#define ENTER(name)                                                            \
  std::lock_guard<std::mutex> lock(cuda_double::getState().mutex);             \
  if (ncclResult_t result = enter(name))                                       \
    return result;
/// Of a function of the communicator `comm`.
#define ENTER_COMM(name)                                                       \
  ENTER(name)                                                                  \
  CommPtr own = find(comm, name);                                              \
  if (!own)                                                                    \
    return ncclInvalidArgument;

#endif // STEPC_TEST_NCCL_DOUBLE_STATE_H
