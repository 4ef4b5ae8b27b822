//===- State.cpp - what the double of NCCL keeps ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

using namespace nccl_double;

nccl_double::State &nccl_double::getState() {
  static State state;
  return state;
}

ncclResult_t nccl_double::enter(const char *function) {
  State &state = getState();
  ++state.calls[function];
  if (state.failingIn > 0 && state.failingName == function &&
      --state.failingIn == 0) {
    state.lastError = "a test made " + state.failingName + " fail";
    return state.failingWith;
  }
  return ncclSuccess;
}

ncclResult_t nccl_double::noteFault(const std::string &words,
                                    ncclResult_t result) {
  if (getState().fault.empty())
    getState().fault = words;
  return result;
}

CommPtr nccl_double::find(ncclComm *comm, const char *function) {
  auto found = getState().comms.find(comm);
  if (found != getState().comms.end() && !found->second->aborted)
    return found->second;
  noteFault(std::string(function) + " of a communicator that is gone");
  return nullptr;
}

bool nccl_double::isBusy(const ncclComm &comm) { return comm.job != nullptr; }

ncclResult_t nccl_double::poll(ncclComm &comm) {
  std::shared_ptr<Job> job = comm.job;
  if (comm.error || !job)
    return comm.error;
  if (job->polls > 0) {
    --job->polls;
    return ncclInProgress;
  }
  if (!job->isReady())
    return ncclInProgress;
  for (const CommPtr &own : job->comms)
    own->job = nullptr;
  job->finish();
  cuda_double::getState().changed.notify_all();
  return comm.error;
}

ncclResult_t nccl_double::start(std::shared_ptr<Job> job) {
  ncclComm &comm = *job->comms[0];
  bool blocking = comm.blocking;
  for (const CommPtr &own : job->comms)
    own->job = job;
  cuda_double::getState().changed.notify_all();
  if (!blocking) {
    job->polls = int64_t(cuda_double::getState().random() % 4);
    return poll(comm);
  }
  auto begin = std::chrono::steady_clock::now();
  for (;;) {
    ncclResult_t result = poll(comm);
    if (result != ncclInProgress)
      return result;
    if (!cuda_double::maySleep(begin, "a blocking communicator"))
      return ncclSystemError;
    cuda_double::waitForOthers();
  }
}
