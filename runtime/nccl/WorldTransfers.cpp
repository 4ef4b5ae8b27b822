//===- WorldTransfers.cpp - transfers of ranks of NCCL ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All of a transfer is one group of calls on a stream of the world's. Pieces
// are bytes: NCCL adds nothing up here.
//
//===----------------------------------------------------------------------===//

#include "nccl/World.h"

#include "comm/CallCheck.h"
#include "comm/Describe.h"

#include <algorithm>
#include <numeric>

using namespace stepc;
using namespace stepc::cuda;
using namespace stepc::nccl;

static char *move(const void *address, int64_t bytes) {
  return reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(address) +
                                  uintptr_t(bytes));
}

/// "all_to_all of 96 bytes over axes [0]": of what is received.
static std::string describeBytes(const RoundLog::Entry &entry) {
  return std::string(getTransferName(entry.transferKind)) + " of " +
         std::to_string(entry.call.count) + " bytes over " +
         describeAxes(entry.call.axes);
}

std::string World::describeTransfer(const RoundLog::Entry &entry) const {
  return describeBytes(entry) +
         describeRanks(entry.call.axes & grid.getWideAxes());
}

/// What the messages of a transfer are about.
static RoundLog::Entry makeEntry(const StepcTransfer &transfer, size_t size) {
  RoundLog::Entry entry;
  entry.call.axes = transfer.axes;
  entry.call.count = std::accumulate(transfer.receiveBytes,
                                     transfer.receiveBytes + size, int64_t(0));
  entry.numCalls = 1;
  entry.transferKind = transfer.kind;
  return entry;
}

/// Where this rank is in the group, whose ranks NCCL counts as the grid does.
static size_t getPlace(const std::vector<int64_t> &ranks, int64_t rank) {
  return size_t(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

void World::copyOwn(const StepcTransfer &transfer, size_t own,
                    CUstream stream) {
  int64_t bytes = transfer.receiveBytes[own];
  bool toAll = transfer.kind == STEPC_ALL_TO_ALL;
  const char *from =
      move(transfer.send,
           toAll ? std::accumulate(transfer.sendBytes, transfer.sendBytes + own,
                                   int64_t(0))
                 : 0);
  char *to = move(transfer.receive,
                  std::accumulate(transfer.receiveBytes,
                                  transfer.receiveBytes + own, int64_t(0)));
  if (bytes > 0 && from != to)
    device->require(
        device->getDriver().cuMemcpyDtoDAsync(
            reinterpret_cast<CUdeviceptr>(to),
            reinterpret_cast<CUdeviceptr>(from), size_t(bytes), stream),
        "cuMemcpyDtoDAsync", " of " + std::to_string(bytes) + " bytes");
}

/// The calls of a transfer, in the group: whether one failed, and how.
ncclResult_t World::callAllToAll(const StepcTransfer &transfer, size_t own,
                                 const Group &group, CUstream stream) {
  const NcclTable &nccl = communicators.getTable();
  const char *send = move(transfer.send, 0);
  char *receive = move(transfer.receive, 0);
  for (size_t r = 0; r < group.ranks.size(); ++r) {
    auto sent = size_t(transfer.sendBytes[r]);
    auto received = size_t(transfer.receiveBytes[r]);
    ncclResult_t result = ncclSuccess;
    if (r != own && sent > 0)
      result = nccl.ncclSend(send, sent, ncclInt8, int(r), group.comm, stream);
    if (isFine(result) && r != own && received > 0)
      result = nccl.ncclRecv(receive, received, ncclInt8, int(r), group.comm,
                             stream);
    if (!isFine(result))
      return result;
    send = move(send, int64_t(sent));
    receive = move(receive, int64_t(received));
  }
  return ncclSuccess;
}

ncclResult_t World::callAllGather(const StepcTransfer &transfer,
                                  const Group &group, CUstream stream) {
  const NcclTable &nccl = communicators.getTable();
  const int64_t *bytes = transfer.receiveBytes;
  size_t size = group.ranks.size();
  if (std::all_of(bytes, bytes + size,
                  [&](int64_t own) { return own == bytes[0]; }))
    return nccl.ncclAllGather(transfer.send, transfer.receive, size_t(bytes[0]),
                              ncclInt8, group.comm, stream);
  char *receive = move(transfer.receive, 0);
  for (size_t r = 0; r < size; ++r) {
    ncclResult_t result = ncclSuccess;
    if (bytes[r] > 0)
      result = nccl.ncclBroadcast(transfer.send ? transfer.send : receive,
                                  receive, size_t(bytes[r]), ncclInt8, int(r),
                                  group.comm, stream);
    if (!isFine(result))
      return result;
    receive = move(receive, bytes[r]);
  }
  return ncclSuccess;
}

void World::launchTransfer(const StepcTransfer &transfer, const Group &group,
                           const RoundLog::Entry &entry, CUstream stream) {
  const NcclTable &nccl = communicators.getTable();
  size_t own = getPlace(group.ranks, rank);
  bool toAll = transfer.kind == STEPC_ALL_TO_ALL;
  if (toAll || group.ranks.size() == 1)
    copyOwn(transfer, own, stream);
  if (group.ranks.size() == 1)
    return;
  auto describeEnd = [&] {
    return "ncclGroupEnd of " + describeTransfer(entry);
  };
  Deadline deadline(communicators.getLength());
  nccl::require(nccl, nccl.ncclGroupStart(), "ncclGroupStart");
  ncclResult_t result = toAll ? callAllToAll(transfer, own, group, stream)
                              : callAllGather(transfer, group, stream);
  if (!isFine(result)) {
    std::string words = describeResult(nccl, result);
    // Else what this thread calls next would be part of the group.
    nccl.ncclGroupEnd();
    fail(STEPC_COMMUNICATION_ERROR, "%s: %s", describeTransfer(entry).c_str(),
         words.c_str());
  }
  nccl::require(nccl, nccl.ncclGroupEnd(), describeEnd);
  communicators.requireReady(group.comm, deadline, describeEnd);
}

CUevent World::startTransfer(const StepcTransfer &transfer, CUstream stream) {
  CUevent done = nullptr;
  guard([&] {
    uint64_t axes = transfer.axes & grid.getWideAxes();
    std::vector<int64_t> alone = {rank};
    size_t size = axes ? groups.at(axes).ranks.size() : 1;
    std::string fault = findTransferFault(transfer, size, grid.getNumAxes());
    if (!fault.empty())
      throw Error(STEPC_COMMUNICATION_ERROR, fault);
    communicators.requireSound();
    RoundLog::Entry entry = makeEntry(transfer, size);
    CUstream own = ownStream.follow(stream);
    if (entry.call.count > 0 || transfer.kind == STEPC_ALL_TO_ALL)
      launchTransfer(transfer, axes ? groups.at(axes) : Group{nullptr, alone},
                     entry, own);
    done = ownStream.record();
    if (axes && !cuda::isCapturing(*device, stream))
      log.add(entry, own);
  });
  return done;
}

void World::finishTransfer(CUevent done, CUstream stream) {
  if (!failure.empty())
    ownStream.takeBack(done);
  guard([&] { ownStream.join(stream, done); });
}
