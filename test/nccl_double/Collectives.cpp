//===- Collectives.cpp - groups of calls, and their kernels -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include <cstring>

using namespace nccl_double;

namespace {

/// The calls of a group and communicator.
class Kernel : public cuda_double::Work {
public:
  /// One that is not on a stream has no number: it is in a graph, or about to
  /// be on a stream.
  Kernel(CommPtr comm, std::vector<Reduction> reductions, int64_t number)
      : comm(std::move(comm)), reductions(std::move(reductions)),
        number(number) {
    this->comm->captured += number < 0;
  }
  ~Kernel() override { comm->captured -= number < 0; }

  std::shared_ptr<Work> begin() override {
    return std::make_shared<Kernel>(comm, reductions, comm->enqueued++);
  }
  bool mayRun() override;
  cuda_double::CUresult run() override;

private:
  Meeting &getMeeting() { return comm->clique->meetings[number]; }
  bool hasMemory() const;

  CommPtr comm;
  std::vector<Reduction> reductions;
  int64_t number;
};

double toDouble(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint64_t combine(const Reduction &reduction, uint64_t a, uint64_t b) {
  if (reduction.type == ncclInt64)
    return uint64_t(std::max(int64_t(a), int64_t(b)));
  double sum = toDouble(a) + toDouble(b);
  uint64_t bits;
  std::memcpy(&bits, &sum, sizeof(bits));
  return bits;
}

/// The parts go around a ring: that of a rank is finished at this rank.
std::vector<uint64_t> reduce(const Meeting &meeting, size_t index) {
  const Reduction &first = (*meeting.ranks[0])[index];
  size_t size = meeting.ranks.size(), part = first.count / size + 1;
  std::vector<uint64_t> results(first.count);
  for (size_t i = 0; i < first.count; ++i)
    for (size_t k = 0; k < size; ++k) {
      size_t rank = (i / part + 1 + k) % size;
      auto *elements =
          static_cast<const uint64_t *>((*meeting.ranks[rank])[index].from);
      results[i] =
          k == 0 ? elements[i] : combine(first, results[i], elements[i]);
    }
  return results;
}

std::string describe(const std::vector<Reduction> &reductions) {
  std::string text;
  for (const Reduction &reduction : reductions)
    text += (text.empty() ? "" : ", ") + std::to_string(reduction.count) + "x" +
            std::to_string(reduction.type) + "/" +
            std::to_string(reduction.operation);
  return text;
}

/// All ranks' kernels have begun.
void meet(Meeting &meeting) {
  std::string first = describe(*meeting.ranks[0]);
  for (size_t rank = 1; rank < meeting.ranks.size(); ++rank) {
    std::string own = describe(*meeting.ranks[rank]);
    if (own == first)
      continue;
    noteFault("rank " + std::to_string(rank) + " reduces " + own + ", rank 0 " +
              first);
    meeting.dead = true;
    return;
  }
  for (size_t index = 0; index < meeting.ranks[0]->size(); ++index)
    meeting.results.push_back(reduce(meeting, index));
  meeting.complete = true;
}

bool Kernel::hasMemory() const {
  for (const Reduction &reduction : reductions)
    for (const void *address :
         {reduction.from, static_cast<const void *>(reduction.to)}) {
      auto *allocation = cuda_double::findAllocation(
          reinterpret_cast<cuda_double::CUdeviceptr>(address),
          reduction.count * 8);
      if (!allocation || allocation->context != comm->context)
        return false;
    }
  return true;
}

bool Kernel::mayRun() {
  if (comm->aborted)
    return true;
  if (comm->ended != number || comm->error)
    return false;
  Meeting &meeting = getMeeting();
  size_t rank = size_t(comm->rank);
  meeting.ranks.resize(size_t(comm->clique->size));
  if (!meeting.ranks[rank]) {
    if (!hasMemory()) {
      cuda_double::getState().fault = "an all-reduce leaves its allocation";
      comm->context->broken = stepc::cuda::CUDA_ERROR_ILLEGAL_ADDRESS;
      return true;
    }
    meeting.ranks[rank] = &reductions;
    if (++meeting.begun == comm->clique->size && !meeting.dead)
      meet(meeting);
    cuda_double::getState().changed.notify_all();
  }
  meeting.dead |= comm->clique->broken && !meeting.complete;
  return meeting.complete;
}

cuda_double::CUresult Kernel::run() {
  ++comm->ended;
  if (comm->aborted) {
    // Wherever it was, it ends there.
    for (const Reduction &reduction : reductions)
      if (hasMemory())
        std::memset(reduction.to, 0xa5, reduction.count * 8);
    return stepc::cuda::CUDA_SUCCESS;
  }
  Meeting &meeting = getMeeting();
  for (size_t index = 0; index < reductions.size(); ++index)
    std::memcpy(reductions[index].to, meeting.results[index].data(),
                reductions[index].count * 8);
  if (++meeting.ended == comm->clique->size)
    comm->clique->meetings.erase(number);
  return stepc::cuda::CUDA_SUCCESS;
}

struct Call {
  CommPtr comm;
  Reduction reduction;
  cuda_double::CUstream stream;
};

/// Of each thread.
struct Group {
  int32_t depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Call> calls;
};
thread_local Group group;

/// Puts one kernel for each communicator on its stream.
void enqueueKernels(const std::vector<Call> &calls) {
  std::vector<CommPtr> done;
  for (const Call &call : calls) {
    if (std::find(done.begin(), done.end(), call.comm) != done.end())
      continue;
    done.push_back(call.comm);
    std::vector<Reduction> reductions;
    for (const Call &other : calls)
      if (other.comm == call.comm)
        reductions.push_back(other.reduction);
    cuda_double::Operation operation;
    operation.kind = cuda_double::Operation::Kind::Other;
    operation.work = std::make_shared<Kernel>(call.comm, reductions, -1);
    if (cuda_double::enqueue(call.comm->context, call.stream,
                             std::move(operation)))
      call.comm->error = ncclUnhandledCudaError;
  }
}

/// With the first group of a communicator its ranks connect.
bool areConnected(const std::vector<CommPtr> &comms) {
  if (!getState().connectLazily)
    return true;
  bool connected = true;
  for (const CommPtr &comm : comms) {
    Clique &clique = *comm->clique;
    clique.connecting.insert(comm->rank);
    connected &= int32_t(clique.connecting.size()) == clique.size;
  }
  return connected;
}

ncclResult_t endGroup() {
  std::vector<Call> calls = std::move(group.calls);
  ncclResult_t error = group.error;
  group = Group();
  if (error || calls.empty())
    return error;
  auto job = std::make_shared<Job>();
  for (const Call &call : calls)
    if (std::find(job->comms.begin(), job->comms.end(), call.comm) ==
        job->comms.end())
      job->comms.push_back(call.comm);
  job->isReady = [comms = job->comms] { return areConnected(comms); };
  job->finish = [calls] { enqueueKernels(calls); };
  return start(job);
}

} // namespace

extern "C" {

ncclResult_t ncclGroupStart() {
  ENTER("ncclGroupStart");
  if (++group.depth > 1)
    noteFault("ncclGroupStart in a group");
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  std::lock_guard<std::mutex> lock(cuda_double::getState().mutex);
  if (group.depth == 0)
    return noteFault("ncclGroupEnd without a group", ncclInvalidUsage);
  if (ncclResult_t result = enter("ncclGroupEnd")) {
    group = Group();
    return result;
  }
  return --group.depth > 0 ? int(ncclSuccess) : endGroup();
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count,
                           ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  auto call = [&]() -> ncclResult_t {
    ENTER_COMM("ncclAllReduce");
    bool known = (type == ncclFloat64 && operation == ncclSum) ||
                 (type == ncclInt64 && operation == ncclMax);
    if (!known || !from || !to || isBusy(*own) || own->finalized)
      return noteFault("ncclAllReduce that NCCL refuses");
    if (own->error)
      return own->error;
    if (group.depth == 0)
      noteFault("ncclAllReduce outside of a group");
    group.calls.push_back({own, {from, to, count, type, operation}, stream});
    return ncclSuccess;
  };
  ncclResult_t result = call();
  if (group.depth > 0 && result && !group.error)
    group.error = result;
  return result;
}

} // extern "C"
