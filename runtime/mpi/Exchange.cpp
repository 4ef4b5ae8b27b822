//===- Exchange.cpp - one reduction over a group of processes -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mpi/Exchange.h"

#include "comm/Describe.h"
#include "comm/RankSums.h"

#include <climits>
#include <cstring>

using namespace stepc;
using namespace stepc::mpi;

Exchange::Exchange(const StepcReduceCall &call, const Group &group)
    : call(call), group(group), whole(isGatheredWhole(call.count, group.size)) {
  if (call.count > INT_MAX / group.size)
    throw Error(STEPC_COMMUNICATION_ERROR,
                describe() + " with " + std::to_string(group.size) +
                    " ranks is more than MPI counts");
  auto *elements = static_cast<const int64_t *>(call.data);
  sent.assign(elements, elements + call.count);
}

int64_t Exchange::getBegin(int rank) const {
  return getPartBegin(call.count, rank, group.size);
}

MPI_Request Exchange::begin() {
  MPI_Request request;
  if (whole) {
    received.resize(size_t(call.count * group.size));
    require(MPI_Iallgather(sent.data(), int(call.count), MPI_INT64_T,
                           received.data(), int(call.count), MPI_INT64_T,
                           group.comm, &request),
            "MPI_Iallgather of " + describe());
    return request;
  }
  int64_t own = getBegin(group.rank + 1) - getBegin(group.rank);
  received.resize(size_t(own * group.size));
  for (int other = 0; other < group.size; ++other) {
    sendOffsets.push_back(int(getBegin(other)));
    sendCounts.push_back(int(getBegin(other + 1) - getBegin(other)));
    receiveOffsets.push_back(int(own * other));
    receiveCounts.push_back(int(own));
  }
  require(MPI_Ialltoallv(sent.data(), sendCounts.data(), sendOffsets.data(),
                         MPI_INT64_T, received.data(), receiveCounts.data(),
                         receiveOffsets.data(), MPI_INT64_T, group.comm,
                         &request),
          "MPI_Ialltoallv of " + describe());
  return request;
}

MPI_Request Exchange::beginSecond() {
  int64_t begin = getBegin(group.rank);
  int64_t own = getBegin(group.rank + 1) - begin;
  // What was sent has arrived: it makes room for the results.
  std::vector<int64_t> reduced(size_t(own), 0);
  combineRanks(call.reduction, received.data(), own, group.size,
               reduced.data());
  received = std::move(reduced);
  MPI_Request request;
  require(MPI_Iallgatherv(received.data(), int(own), MPI_INT64_T, sent.data(),
                          sendCounts.data(), sendOffsets.data(), MPI_INT64_T,
                          group.comm, &request),
          "MPI_Iallgatherv of " + describe());
  return request;
}

void Exchange::end() {
  if (whole)
    combineRanks(call.reduction, received.data(), call.count, group.size,
                 sent.data());
  std::memcpy(call.data, sent.data(), size_t(call.count) * sizeof(int64_t));
}

std::string Exchange::describe() const { return describeCall(call); }
