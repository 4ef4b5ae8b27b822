//===- Pull.cpp - what a rank takes from the others' outboxes -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "shm/Group.h"

#include "core/Status.h"

#include <algorithm>
#include <cstring>

using namespace stepc;
using namespace stepc::shm;

/// Each rank begins with its neighbour, so that not all read from one.
bool Group::pull() {
  bool moved = false;
  int64_t numRanks = region.getNumRanks();
  for (int64_t k = 1; k < numRanks; ++k)
    moved |= pullFrom(uint64_t((region.getRank() + k) % numRanks));
  return moved;
}

/// Goes through what the other has put. What is for others alone may be
/// overwritten at any time: then the tag is of another chunk. What is for this
/// rank stays until it says that it has it.
bool Group::pullFrom(uint64_t other) {
  bool moved = false;
  uint64_t numPut = region.getMember(int64_t(other)).numPut.load();
  uint64_t &at = numTaken[other];
  if (numPut > at + uint64_t(kNumSlots))
    at = numPut - uint64_t(kNumSlots);
  for (; at < numPut; ++at) {
    uint64_t tag =
        region.getSlot(int64_t(other), at).tag.load(std::memory_order_acquire);
    uint64_t whom = tag & kToAll;
    if (tag >> 16 != at ||
        (whom != kToAll && whom != uint64_t(region.getRank())))
      continue;
    if (!take(other, at))
      break;
    moved = true;
  }
  return moved;
}

/// Whether it could be: not what belongs to an exchange that this rank has not
/// started yet.
bool Group::take(uint64_t other, uint64_t chunk) {
  const Slot &slot = region.getSlot(int64_t(other), chunk);
  if (slot.exchange >= numStarted)
    return false;
  auto found = open.find(slot.exchange);
  if (found == open.end())
    fail(STEPC_COMMUNICATION_ERROR, "%s has sent more than was expected",
         getName(other).c_str());
  Exchange &exchange = *found->second;
  auto piece = std::find_if(exchange.in.begin(), exchange.in.end(),
                            [&](const Piece &p) { return p.rank == other; });
  if (slot.kind != exchange.kind)
    fail(STEPC_COMMUNICATION_ERROR, "%s: %s has %s there",
         exchange.describe().c_str(), getName(other).c_str(),
         describeKind(slot.kind).c_str());
  if (slot.total != piece->bytes)
    fail(STEPC_COMMUNICATION_ERROR,
         "%s: %s has %lld bytes for %s, which expects %lld",
         exchange.describe().c_str(), getName(other).c_str(),
         static_cast<long long>(slot.total),
         getName(uint64_t(region.getRank())).c_str(),
         static_cast<long long>(piece->bytes));
  if (slot.bytes > 0)
    std::memcpy(piece->address + slot.begin,
                region.getBytes(int64_t(other), chunk), size_t(slot.bytes));
  piece->begun = true;
  piece->done += slot.bytes;
  region.getTaken(int64_t(other), region.getRank())
      .store(chunk + 1, std::memory_order_release);
  region.ring(int64_t(other));
  return true;
}
