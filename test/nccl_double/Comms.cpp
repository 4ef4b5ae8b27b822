//===- Comms.cpp - communicators are made, split and ended --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include <cstring>

using namespace nccl_double;

namespace {

/// As NCCL reads a configuration; without one there are defaults.
ncclResult_t readConfig(const ncclConfig_t *config, bool &blocking) {
  if (!config)
    return ncclSuccess;
  if (config->magic != kConfigMagic || config->size < sizeof(ncclConfig_t) ||
      config->version < 21400)
    return noteFault("a configuration that NCCL does not read");
  blocking = config->blocking != 0;
  return ncclSuccess;
}

CommPtr make(std::shared_ptr<Clique> clique, int32_t rank) {
  auto comm = std::make_shared<ncclComm>();
  comm->clique = std::move(clique);
  comm->rank = comm->firstRank = rank;
  return comm;
}

ncclResult_t join(const CommPtr &comm) {
  Clique &clique = *comm->clique;
  for (auto &[rank, other] : clique.members)
    if (other->context == comm->context)
      return noteFault("two ranks of a communicator are on one device",
                       ncclInvalidUsage);
  if (!clique.members.emplace(comm->rank, comm.get()).second)
    return noteFault("a rank is there twice");
  getState().comms[comm.get()] = comm;
  return ncclSuccess;
}

/// The kernels of a communicator that is aborted end; those of others do not.
void breakClique(ncclComm &comm) {
  Clique &clique = *comm.clique;
  clique.broken = true;
  ++clique.left;
  for (auto &[number, meeting] : clique.meetings)
    meeting.dead |= !meeting.complete;
  for (auto &[rank, other] : clique.members)
    if (other != &comm && getState().tellAborts && !other->error)
      other->error = ncclRemoteError;
}

std::shared_ptr<Clique> getChild(Split &split, int32_t color) {
  std::shared_ptr<Clique> &child = split.children[color];
  if (!child) {
    child = std::make_shared<Clique>();
    for (auto &[rank, request] : split.ranks)
      child->size += request.color == color;
  }
  return child;
}

/// In the order of keys, and of ranks where they are the same.
int32_t getChildRank(const Split &split, int32_t own) {
  Split::Request mine = split.ranks.at(own);
  int32_t before = 0;
  for (auto &[rank, request] : split.ranks)
    before += request.color == mine.color &&
              std::pair(request.key, rank) < std::pair(mine.key, own);
  return before;
}

} // namespace

extern "C" {

const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclUnhandledCudaError:
    return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
  case ncclSystemError:
    return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
  case ncclInternalError:
    return "internal error - please report this issue to the NCCL developers";
  case ncclInvalidArgument:
    return "invalid argument (run with NCCL_DEBUG=WARN for details)";
  case ncclInvalidUsage:
    return "invalid usage (run with NCCL_DEBUG=WARN for details)";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  default:
    return "unknown result code";
  }
}

const char *ncclGetLastError(ncclComm_t) {
  std::lock_guard<std::mutex> lock(cuda_double::getState().mutex);
  // Of the thread, so that it stays as it is.
  thread_local std::string words;
  words = getState().lastError;
  return words.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
  ENTER("ncclGetUniqueId");
  std::memset(out, 0, sizeof(*out));
  std::string id = "double " + std::to_string(++getState().ids);
  std::memcpy(out->internal, id.data(), id.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int numRanks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  ENTER("ncclCommInitRankConfig");
  *out = nullptr;
  if (cuda_double::getContextStack().empty())
    return ncclUnhandledCudaError;
  std::string key(id.internal, sizeof(id.internal));
  if (key.find("double ") != 0 || getState().usedIds.count(key))
    return noteFault("an identifier that is used up or none");
  std::shared_ptr<Clique> &clique = getState().inits[key];
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->size = numRanks;
  }
  if (clique->size != numRanks || rank < 0 || rank >= numRanks)
    return noteFault("ranks of " + std::to_string(numRanks) + " and of " +
                     std::to_string(clique->size) + " have one identifier");
  CommPtr comm = make(clique, rank);
  comm->context = cuda_double::getContextStack().back();
  if (ncclResult_t result = readConfig(config, comm->blocking))
    return result;
  if (ncclResult_t result = join(comm))
    return result;
  *out = comm.get();
  if (int32_t(clique->members.size()) == clique->size) {
    getState().usedIds.insert(key);
    getState().inits.erase(key);
  }
  auto job = std::make_shared<Job>();
  job->comms = {comm};
  job->isReady = [all = comm->clique] {
    return !all->broken && int32_t(all->members.size()) == all->size;
  };
  job->finish = [] {};
  return start(job);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config) {
  ENTER_COMM("ncclCommSplit");
  *out = nullptr;
  if (isBusy(*own) || own->finalized || color < 0)
    return noteFault("ncclCommSplit of a communicator that is not ready");
  if (own->error)
    return own->error;
  bool blocking = own->blocking;
  if (ncclResult_t result = readConfig(config, blocking))
    return result;
  std::shared_ptr<Clique> parent = own->clique;
  int64_t number = own->splits++;
  parent->splits[number].ranks[own->rank] = {color, key};
  auto job = std::make_shared<Job>();
  job->comms = {own};
  job->isReady = [parent, number] {
    return !parent->broken &&
           int32_t(parent->splits[number].ranks.size()) == parent->size;
  };
  job->finish = [own, parent, number, color, blocking, out] {
    Split &split = parent->splits[number];
    CommPtr child =
        make(getChild(split, color), getChildRank(split, own->rank));
    child->firstRank = own->firstRank;
    child->context = own->context;
    child->blocking = blocking;
    join(child);
    *out = child.get();
  };
  ncclResult_t result = start(job);
  // As NCCL does: that it is in progress is told by the parent alone.
  return result == ncclInProgress && cuda_double::getState().random() % 2
             ? int(ncclSuccess)
             : result;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  ENTER_COMM("ncclCommFinalize");
  if (isBusy(*own) || own->finalized)
    return noteFault("ncclCommFinalize of a communicator that is not ready");
  if (own->error)
    return own->error;
  own->finalized = true;
  ++own->clique->left;
  auto job = std::make_shared<Job>();
  job->comms = {own};
  job->isReady = [own] {
    cuda_double::advance();
    return own->ended == own->enqueued && own->captured == 0 &&
           !own->clique->broken && own->clique->left == own->clique->size;
  };
  job->finish = [] {};
  return start(job);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ENTER_COMM("ncclCommDestroy");
  if (isBusy(*own) || (!own->blocking && !own->finalized) ||
      own->ended != own->enqueued)
    noteFault("ncclCommDestroy of a communicator that is not quiet");
  own->aborted = true;
  own->clique->members.erase(own->rank);
  getState().comms.erase(comm);
  cuda_double::getState().changed.notify_all();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ENTER_COMM("ncclCommAbort");
  own->aborted = true;
  own->job = nullptr;
  breakClique(*own);
  cuda_double::getState().changed.notify_all();
  // It waits for its kernels, and for graphs that have some.
  auto begin = std::chrono::steady_clock::now();
  while ((own->ended != own->enqueued && !own->context->broken) ||
         own->captured > 0) {
    cuda_double::advance();
    if (!cuda_double::maySleep(begin, "ncclCommAbort"))
      break;
    cuda_double::waitForOthers();
  }
  own->clique->members.erase(own->rank);
  getState().comms.erase(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out) {
  ENTER_COMM("ncclCommGetAsyncError");
  *out = poll(*own);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *out) {
  ENTER_COMM("ncclCommCount");
  *out = own->clique->size;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *out) {
  ENTER_COMM("ncclCommCuDevice");
  *out = own->context->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *out) {
  ENTER_COMM("ncclCommUserRank");
  *out = own->rank;
  return ncclSuccess;
}

} // extern "C"
