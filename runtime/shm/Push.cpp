//===- Push.cpp - what a rank puts into its outbox ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "shm/Group.h"

#include <algorithm>
#include <cstring>

using namespace stepc;
using namespace stepc::shm;

bool Group::push() {
  bool moved = false;
  while (!unput.empty() && findBlockers().empty()) {
    Exchange &exchange = *unput.front();
    while (exchange.out[exchange.turn].isWhole())
      exchange.turn = (exchange.turn + 1) % exchange.out.size();
    put(exchange, exchange.out[exchange.turn]);
    exchange.turn = (exchange.turn + 1) % exchange.out.size();
    if (exchange.isPut())
      unput.pop_front();
    moved = true;
  }
  return moved;
}

/// Those who have not taken what is for them in the next slot: it has no room.
std::vector<size_t> Group::findBlockers() const {
  std::vector<size_t> found;
  if (numPut < uint64_t(kNumSlots))
    return found;
  auto own = size_t(region.getRank());
  uint64_t before = numPut - uint64_t(kNumSlots);
  uint64_t whom = region.getSlot(region.getRank(), before).tag.load() & kToAll;
  for (size_t other = 0; other < names.size(); ++other)
    if (other != own && (whom == kToAll || whom == other) &&
        region.getTaken(region.getRank(), int64_t(other))
                .load(std::memory_order_acquire) <= before)
      found.push_back(other);
  return found;
}

void Group::put(Exchange &exchange, Piece &piece) {
  int64_t own = region.getRank();
  Slot &slot = region.getSlot(own, numPut);
  int64_t bytes = std::min(region.getChunkBytes(), piece.bytes - piece.done);
  slot.exchange = exchange.number;
  slot.kind = exchange.kind;
  slot.total = piece.bytes;
  slot.begin = piece.done;
  slot.bytes = bytes;
  if (bytes > 0)
    std::memcpy(region.getBytes(own, numPut), piece.address + piece.done,
                size_t(bytes));
  piece.begun = true;
  piece.done += bytes;
  slot.tag.store(numPut << 16 | piece.rank, std::memory_order_release);
  region.getMember(own).numPut.store(++numPut);
  if (piece.rank != kToAll)
    return region.ring(int64_t(piece.rank));
  for (int64_t other = 0; other < region.getNumRanks(); ++other)
    if (other != own)
      region.ring(other);
}
