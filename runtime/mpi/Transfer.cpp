//===- Transfer.cpp - bytes that a group exchanges over MPI ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mpi/Transfer.h"

#include "comm/Describe.h"

#include <algorithm>
#include <cstring>

using namespace stepc;
using namespace stepc::mpi;

/// MPI counts in int.
static constexpr int64_t kMessageBytes = int64_t(1) << 30;
/// MPI has at least 32768 of them.
static constexpr int64_t kTags = 16384;

Transfer::Transfer(const StepcTransfer &given, const Group &group,
                   int64_t number)
    : transfer(given), group(group),
      tag(int(2 * (number % (kTags / 2)) + (given.kind == STEPC_ALL_GATHER))),
      receiveBytes(given.receiveBytes, given.receiveBytes + group.size) {
  if (given.kind == STEPC_ALL_TO_ALL)
    sendBytes.assign(given.sendBytes, given.sendBytes + group.size);
  else
    sendBytes.assign(size_t(group.size), receiveBytes[size_t(group.rank)]);
}

void Transfer::addMessages(char *address, int64_t bytes, int other,
                           bool sends) {
  for (int64_t at = 0; at < bytes; at += kMessageBytes) {
    int count = int(std::min(kMessageBytes, bytes - at));
    MPI_Request request = MPI_REQUEST_NULL;
    require(sends ? MPI_Isend(address + at, count, MPI_BYTE, other, tag,
                              group.comm, &request)
                  : MPI_Irecv(address + at, count, MPI_BYTE, other, tag,
                              group.comm, &request),
            (sends ? "MPI_Isend of " : "MPI_Irecv of ") + describe());
    requests.push_back(request);
    expected.push_back(sends ? -1 : count);
  }
}

/// Each rank begins with its neighbour, so that not all send to one.
void Transfer::begin() {
  std::vector<char *> receive, send;
  auto *to = static_cast<char *>(transfer.receive);
  auto *from = static_cast<char *>(const_cast<void *>(transfer.send));
  for (int other = 0; other < group.size; ++other) {
    receive.push_back(to);
    send.push_back(from);
    to += receiveBytes[size_t(other)];
    if (transfer.kind == STEPC_ALL_TO_ALL)
      from += sendBytes[size_t(other)];
  }
  auto own = size_t(group.rank);
  if (receiveBytes[own] > 0 && receive[own] != send[own])
    std::memmove(receive[own], send[own], size_t(receiveBytes[own]));
  for (int k = 1; k < group.size; ++k) {
    auto other = size_t((group.rank + group.size - k) % group.size);
    addMessages(receive[other], receiveBytes[other], int(other), false);
  }
  for (int k = 1; k < group.size; ++k) {
    auto other = size_t((group.rank + k) % group.size);
    addMessages(send[other], sendBytes[other], int(other), true);
  }
  statuses.resize(requests.size());
}

bool Transfer::test() {
  int done = 0;
  require(MPI_Testall(int(requests.size()), requests.data(), &done,
                      statuses.data()),
          "MPI_Testall of " + describe());
  for (size_t i = 0; done && i < statuses.size(); ++i) {
    int count = 0;
    if (expected[i] < 0)
      continue;
    MPI_Get_count(&statuses[i], MPI_BYTE, &count);
    if (count != expected[i])
      throw Error(STEPC_COMMUNICATION_ERROR,
                  describe() + ": a message of " + std::to_string(count) +
                      " bytes came, expected " + std::to_string(expected[i]));
  }
  return done != 0;
}

void Transfer::cancel() noexcept {
  for (size_t i = 0; i < requests.size(); ++i)
    if (expected[i] >= 0 && requests[i] != MPI_REQUEST_NULL)
      MPI_Cancel(&requests[i]);
}

std::string Transfer::describe() const {
  int64_t bytes = 0;
  for (size_t other = 0; other < sendBytes.size(); ++other)
    bytes += int(other) == group.rank ? 0 : sendBytes[other];
  return std::string(getTransferName(transfer.kind)) + " of " +
         std::to_string(bytes) + " bytes over " + describeAxes(transfer.axes);
}
