//===- Reduction.cpp - one reduction of processes that share memory -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "shm/Reduction.h"

#include "comm/RankSums.h"

using namespace stepc;
using namespace stepc::shm;

Reduction::Reduction(const StepcReduceCall &call, Group &group)
    : call(call), group(group),
      whole(isGatheredWhole(call.count, group.region.getNumRanks())) {}

int64_t Reduction::getBegin(int64_t rank) const {
  return getPartBegin(call.count, rank, group.region.getNumRanks());
}

std::unique_ptr<Exchange> Reduction::start(int32_t kind, const void *send,
                                           void *receive,
                                           const int64_t *sendBytes,
                                           const int64_t *receiveBytes) {
  StepcTransfer transfer = {call.axes, kind,      0,           send,
                            receive,   sendBytes, receiveBytes};
  return group.begin(transfer, 2 * (1 + call.reduction) + kind);
}

void Reduction::begin() {
  int64_t numRanks = group.region.getNumRanks(), rank = group.region.getRank();
  if (whole) {
    received.resize(size_t(call.count * numRanks));
    bytes.assign(size_t(numRanks), call.count * 8);
    exchange = start(STEPC_ALL_GATHER, call.data, received.data(), nullptr,
                     bytes.data());
    return;
  }
  int64_t own = getBegin(rank + 1) - getBegin(rank);
  received.resize(size_t(own * numRanks));
  for (int64_t other = 0; other < numRanks; ++other)
    bytes.push_back((getBegin(other + 1) - getBegin(other)) * 8);
  std::vector<int64_t> receivedBytes(size_t(numRanks), own * 8);
  exchange = start(STEPC_ALL_TO_ALL, call.data, received.data(), bytes.data(),
                   receivedBytes.data());
}

void Reduction::beginSecond() {
  if (whole)
    return;
  int64_t numRanks = group.region.getNumRanks(), rank = group.region.getRank();
  auto *own = static_cast<int64_t *>(call.data) + getBegin(rank);
  combineRanks(call.reduction, received.data(),
               getBegin(rank + 1) - getBegin(rank), numRanks, own);
  exchange = start(STEPC_ALL_GATHER, own, call.data, nullptr, bytes.data());
}

void Reduction::end() {
  if (whole)
    combineRanks(call.reduction, received.data(), call.count,
                 group.region.getNumRanks(), static_cast<int64_t *>(call.data));
}
