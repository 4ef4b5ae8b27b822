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

std::string read(const void *from, size_t bytes) {
  return {static_cast<const char *>(from), bytes};
}

/// The parts go around a ring: that of a rank is finished at this rank.
std::string reduce(const Meeting &meeting, size_t index) {
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
  return read(results.data(), results.size() * 8);
}

/// What all ranks have to call alike.
std::string describe(const std::vector<Reduction> &reductions) {
  std::string text;
  for (const Reduction &reduction : reductions)
    if (reduction.kind < Reduction::Kind::Send)
      text += (text.empty() ? "" : ", ") + std::to_string(reduction.count) +
              "x" + std::to_string(reduction.type) + "/" +
              std::to_string(reduction.operation) +
              (reduction.kind == Reduction::Kind::AllReduce
                   ? ""
                   : "/" + std::to_string(int(reduction.kind)) + "/" +
                         std::to_string(reduction.peer));
  return text;
}

/// What rank `from` sends to rank `to`, in the order of its calls.
std::vector<const Reduction *> getPairs(const Meeting &meeting, size_t from,
                                        size_t to, bool sent) {
  using Kind = Reduction::Kind;
  std::vector<const Reduction *> found;
  for (const Reduction &call : *meeting.ranks[sent ? from : to])
    if (call.kind == (sent ? Kind::Send : Kind::Receive) &&
        call.peer == int32_t(sent ? to : from))
      found.push_back(&call);
  return found;
}

/// Whether each piece that is sent is received.
bool arePaired(const Meeting &meeting) {
  for (size_t from = 0; from < meeting.ranks.size(); ++from)
    for (size_t to = 0; to < meeting.ranks.size(); ++to) {
      auto sent = getPairs(meeting, from, to, true);
      auto received = getPairs(meeting, from, to, false);
      bool same = sent.size() == received.size();
      for (size_t i = 0; same && i < sent.size(); ++i)
        same = sent[i]->getBytes() == received[i]->getBytes();
      if (same)
        continue;
      noteFault("rank " + std::to_string(from) +
                " sends other pieces than rank " + std::to_string(to) +
                " receives");
      return false;
    }
  return true;
}

std::string getResult(const Meeting &meeting, size_t rank, size_t index) {
  const Reduction &own = (*meeting.ranks[rank])[index];
  switch (own.kind) {
  case Reduction::Kind::AllReduce:
    return reduce(meeting, index);
  case Reduction::Kind::AllGather: {
    std::string all;
    for (const auto *calls : meeting.ranks)
      all += read((*calls)[index].from, own.getBytes());
    return all;
  }
  case Reduction::Kind::Broadcast:
    return read((*meeting.ranks[size_t(own.peer)])[index].from, own.getBytes());
  case Reduction::Kind::Send:
    return "";
  case Reduction::Kind::Receive: {
    auto sent = getPairs(meeting, size_t(own.peer), rank, true);
    auto received = getPairs(meeting, size_t(own.peer), rank, false);
    size_t place = size_t(std::find(received.begin(), received.end(), &own) -
                          received.begin());
    return read(sent[place]->from, own.getBytes());
  }
  }
  return "";
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
  if (!arePaired(meeting)) {
    meeting.dead = true;
    return;
  }
  for (size_t rank = 0; rank < meeting.ranks.size(); ++rank) {
    meeting.results.emplace_back();
    for (size_t index = 0; index < meeting.ranks[rank]->size(); ++index)
      meeting.results[rank].push_back(getResult(meeting, rank, index));
  }
  meeting.complete = true;
}

bool Kernel::hasMemory() const {
  using Kind = Reduction::Kind;
  auto has = [&](const void *address, size_t bytes) {
    auto *allocation = cuda_double::findAllocation(
        reinterpret_cast<cuda_double::CUdeviceptr>(address), bytes);
    return allocation && allocation->context == comm->context;
  };
  for (const Reduction &call : reductions) {
    size_t all = call.kind == Kind::AllGather ? size_t(comm->clique->size) : 1;
    bool reads = call.kind != Kind::Receive &&
                 (call.kind != Kind::Broadcast || call.peer == comm->rank);
    if ((reads && !has(call.from, call.getBytes())) ||
        (call.kind != Kind::Send && !has(call.to, call.getBytes() * all)))
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
      cuda_double::getState().fault = "a call of NCCL leaves its allocation";
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
      if (reduction.kind != Reduction::Kind::Send && hasMemory())
        std::memset(reduction.to, 0xa5, reduction.getBytes());
    return stepc::cuda::CUDA_SUCCESS;
  }
  Meeting &meeting = getMeeting();
  const std::vector<std::string> &results = meeting.results[size_t(comm->rank)];
  for (size_t index = 0; index < reductions.size(); ++index)
    if (reductions[index].kind != Reduction::Kind::Send)
      std::memcpy(reductions[index].to, results[index].data(),
                  results[index].size());
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

/// Adds a call to the group, which fails with it.
ncclResult_t addCall(const char *name, ncclComm_t comm, cudaStream_t stream,
                     const Reduction &made, bool known) {
  auto call = [&]() -> ncclResult_t {
    ENTER_COMM(name);
    if (!known || isBusy(*own) || own->finalized)
      return noteFault(std::string(name) + " that NCCL refuses");
    if (own->error)
      return own->error;
    if (made.peer >= own->clique->size)
      return noteFault(std::string(name) + " of a rank that does not exist");
    if (group.depth == 0)
      noteFault(std::string(name) + " outside of a group");
    group.calls.push_back({own, made, stream});
    return ncclSuccess;
  };
  ncclResult_t result = call();
  if (group.depth > 0 && result && !group.error)
    group.error = result;
  return result;
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
  bool known = (type == ncclFloat64 && operation == ncclSum) ||
               (type == ncclInt64 && operation == ncclMax);
  return addCall("ncclAllReduce", comm, stream,
                 {from, to, count, type, operation}, known && from && to);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return addCall("ncclAllGather", comm, stream,
                 {from, to, count, type, 0, Reduction::Kind::AllGather},
                 type == ncclInt8 && from && to);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return addCall("ncclBroadcast", comm, stream,
                 {from, to, count, type, 0, Reduction::Kind::Broadcast, root},
                 type == ncclInt8 && to && root >= 0);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return addCall("ncclSend", comm, stream,
                 {from, nullptr, count, type, 0, Reduction::Kind::Send, peer},
                 type == ncclInt8 && from && peer >= 0);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return addCall("ncclRecv", comm, stream,
                 {nullptr, to, count, type, 0, Reduction::Kind::Receive, peer},
                 type == ncclInt8 && to && peer >= 0);
}

} // extern "C"
