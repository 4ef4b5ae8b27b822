//===- TransferEvents.cpp - in which order buckets cross ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Transfers.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

using namespace stepc;

namespace {

/// Makes the list of events; it knows of what is under way which memory is
/// free.
class EventMaker {
public:
  EventMaker(const std::vector<const TransferBucket *> &buckets,
             const std::vector<const GatherUnit *> &units, bool parts,
             size_t underWay, NewTransfers &made)
      : buckets(buckets), units(units), parts(parts), underWay(underWay),
        made(made), slots(buckets.size()), unitSlots(units.size()),
        landed(units.size()) {}

  void run();

private:
  using Kind = TransferEvent::Kind;

  /// Memories that things take by turns.
  struct Slots {
    std::vector<size_t> free;
    size_t take(TransferRing &ring, size_t bytes);
  };

  void start(size_t bucket);
  void land(size_t bucket);
  void gather(size_t unit);
  void placeFirst();

  const std::vector<const TransferBucket *> &buckets;
  const std::vector<const GatherUnit *> &units;
  bool parts;
  /// Buckets that cross at the same time, and units.
  size_t underWay;
  NewTransfers &made;
  Slots receive, collect;
  std::vector<size_t> slots, unitSlots;
  /// How many buckets of each unit have.
  std::vector<size_t> landed;
  /// What has started and not landed, by the axes of the parameters and of the
  /// gradients: ranks that share them have the same there, whatever else they
  /// have.
  std::map<std::pair<uint64_t, uint64_t>, std::deque<size_t>> started;
  std::deque<size_t> gathered;
};

} // namespace

size_t EventMaker::Slots::take(TransferRing &ring, size_t bytes) {
  if (free.empty()) {
    free.push_back(ring.sizes.size());
    ring.sizes.push_back(0);
  }
  size_t slot = free.back();
  free.pop_back();
  ring.sizes[slot] = std::max(ring.sizes[slot], bytes);
  return slot;
}

static size_t getReceivedBytes(const TransferBucket &bucket) {
  if (!bucket.crosses() || !bucket.getFirst().axes)
    return 0;
  const std::vector<int64_t> &received = bucket.getFirst().received;
  return size_t(std::accumulate(received.begin(), received.end(), int64_t(0)));
}

void EventMaker::start(size_t bucket) {
  slots[bucket] =
      receive.take(made.receive, getReceivedBytes(*buckets[bucket]));
  made.events.push_back({Kind::Start, bucket, slots[bucket]});
  const EntryTerms &terms = buckets[bucket]->terms;
  std::deque<size_t> &own = started[{terms.wholeAxes, terms.partialAxes}];
  own.push_back(bucket);
  if (own.size() < underWay)
    return;
  size_t first = own.front();
  own.pop_front();
  land(first);
}

void EventMaker::land(size_t bucket) {
  made.events.push_back({Kind::Land, bucket, slots[bucket]});
  receive.free.push_back(slots[bucket]);
  for (size_t unit = 0; parts && unit < units.size(); ++unit) {
    const std::vector<size_t> &own = units[unit]->buckets;
    if (std::find(own.begin(), own.end(), bucket) != own.end() &&
        ++landed[unit] == own.size())
      gather(unit);
  }
}

void EventMaker::gather(size_t unit) {
  if (gathered.size() == underWay)
    placeFirst();
  const GatherUnit &own = *units[unit];
  unitSlots[unit] =
      collect.take(made.gather, own.inPlace ? 0 : size_t(own.bytes));
  made.events.push_back({Kind::Gather, unit, unitSlots[unit]});
  gathered.push_back(unit);
}

void EventMaker::placeFirst() {
  size_t unit = gathered.front();
  gathered.pop_front();
  made.events.push_back({Kind::Place, unit, unitSlots[unit]});
  collect.free.push_back(unitSlots[unit]);
}

void EventMaker::run() {
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket)
    start(bucket);
  std::vector<size_t> rest;
  for (const auto &[axes, list] : started)
    rest.insert(rest.end(), list.begin(), list.end());
  std::sort(rest.begin(), rest.end());
  for (size_t bucket : rest)
    land(bucket);
  made.beginGive = made.events.size();
  for (size_t unit = 0; !parts && unit < units.size(); ++unit)
    gather(unit);
  while (!gathered.empty())
    placeFirst();
  if (parts)
    made.beginGive = made.events.size();
}

void Transfers::addEvents(NewTransfers &made) const {
  std::vector<const TransferBucket *> all;
  std::vector<const GatherUnit *> allUnits;
  auto append = [](const auto &list, auto &pointers) {
    for (const auto &element : list)
      pointers.push_back(&element);
  };
  append(buckets, all);
  append(made.buckets, all);
  append(units, allUnits);
  append(made.units, allUnits);
  EventMaker(all, allUnits, parts, size_t(bucketSizes.underWay), made).run();
}
