//===- Exchange.cpp - what crosses ranks between segments ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Exchange.h"

#include "core/Fault.h"
#include "core/OrderedInteger.h"
#include "core/Reserve.h"

#include <algorithm>
#include <cstdio>
#include <limits>

using namespace stepc;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

Exchange::Exchange(const Manifest &manifest) : manifest(manifest) {
  const std::vector<Round> &rounds = manifest.rounds;
  for (size_t r = rounds.size(); r-- > 0;)
    if (!rounds[r].calls.empty())
      activeRound = int64_t(r);
  calls.reserve(2);
}

void Exchange::reserveGroups(size_t numGroups) {
  size_t most = numGroups * (manifest.statistics.size() + 1);
  reserveAtLeast(sums, most);
  reserveAtLeast(maxima, most);
}

void Exchange::beginReserve() noexcept {
  for (Pack &pack : packs) {
    pack.newEntries = 0;
    pack.newSlices = 0;
  }
}

Exchange::Pack &Exchange::findPack(const PackKey &key) noexcept {
  return *std::lower_bound(
      packs.begin(), packs.end(), key,
      [](const Pack &pack, const PackKey &other) { return pack.key < other; });
}

void Exchange::reserve(const PackKey &key, int64_t entries) {
  auto at = packs.begin();
  while (at != packs.end() && at->key < key)
    ++at;
  if (at == packs.end() || !(at->key == key)) {
    at = packs.emplace(at);
    at->key = key;
  }
  ++at->newSlices;
  if (__builtin_add_overflow(at->newEntries, entries, &at->newEntries))
    throw std::bad_alloc();
}

/// By doubling, as tensors may be bound one by one.
void Exchange::endReserve() {
  reserveAtLeast(calls, packs.size() + 2);
  for (Pack &pack : packs) {
    reserveAtLeast(pack.slices, pack.slices.size() + pack.newSlices);
    int64_t needed, capacity = pack.getCapacity();
    if (__builtin_add_overflow(pack.count, pack.newEntries, &needed) ||
        needed > INT64_MAX / 16)
      throw std::bad_alloc();
    pack.grown.reset();
    if (pack.newSlices == 0 || (pack.memory && needed <= capacity))
      continue;
    pack.grown = std::make_unique<StateBlock>(
        size_t(std::max<int64_t>({needed, 2 * capacity, 8})) * 8);
  }
}

void Exchange::add(const PackKey &key, int64_t tensor, int64_t word,
                   int64_t entries) noexcept {
  Pack &pack = findPack(key);
  if (pack.grown) {
    // What was in it is of no use between steps.
    pack.memory = std::move(pack.grown);
    pack.numPlaced = 0;
  }
  pack.slices.push_back({tensor, word, pack.count, entries});
  pack.count += entries;
  if (STEPC_FAULT("exchange-places-overlap") && entries > 1)
    --pack.count;
}

void Exchange::Pack::clear(const Slice &slice) noexcept {
  if (STEPC_FAULT("exchange-idle-not-neutral"))
    return;
  char *entries = getEntries(slice.offset);
  if (key.maximum)
    std::fill_n(reinterpret_cast<int64_t *>(entries), slice.count,
                toOrderedInteger(-kInfinity));
  else
    std::fill_n(reinterpret_cast<double *>(entries), slice.count, 0.0);
}

/// Visits the statistics that are combined in the round: a value for the model,
/// or one for each group.
template <typename Visit>
void Exchange::forEachStatistic(int64_t round, std::vector<Group> &groups,
                                Visit &&visit) {
  for (size_t s = 0; s < manifest.statistics.size(); ++s) {
    const Statistic &statistic = manifest.statistics[s];
    if (statistic.segment != round ||
        STEPC_FAULT("exchange-statistics-not-reduced"))
      continue;
    bool ofModel = statistic.scope == Scope::Model;
    for (size_t g = 0; g < (ofModel ? size_t(1) : groups.size()); ++g) {
      double &value = groups[g].statistics[s];
      visit(statistic, value);
      if (ofModel)
        for (Group &group : groups)
          group.statistics[s] = value;
    }
  }
}

void Exchange::packStatistics(int64_t round,
                              std::vector<Group> &groups) noexcept {
  sums.clear();
  maxima.clear();
  if (groups.empty())
    return;
  forEachStatistic(round, groups, [&](const Statistic &statistic, double &v) {
    if (statistic.maximum)
      maxima.push_back(toOrderedInteger(v));
    else
      sums.push_back(v);
  });
  if (round != activeRound)
    return;
  // With what crosses in any case, where there is something.
  bool inMaxima = sums.empty() && !maxima.empty();
  for (const Group &group : groups) {
    if (inMaxima)
      maxima.push_back(group.active);
    else
      sums.push_back(group.active);
  }
}

void Exchange::unpackStatistics(int64_t round,
                                std::vector<Group> &groups) noexcept {
  if (groups.empty())
    return;
  const double *sum = sums.data();
  const int64_t *maximum = maxima.data();
  forEachStatistic(round, groups, [&](const Statistic &statistic, double &v) {
    v = statistic.maximum ? fromOrderedInteger(*maximum++) : *sum++;
  });
  if (round != activeRound)
    return;
  if (STEPC_FAULT("shard-active-groups-of-rank"))
    return;
  bool inMaxima = sum == sums.data() && maximum != maxima.data();
  for (Group &group : groups)
    group.active = inMaxima ? *maximum++ != 0 : *sum++ != 0.0;
}

void Exchange::addCall(uint64_t axes, StepcReduction reduction, void *data,
                       int64_t count) noexcept {
  if (axes == 0 || count == 0)
    return;
  if (STEPC_FAULT("exchange-call-left-out") && calls.size() == 1)
    return;
  if (STEPC_FAULT("exchange-wrong-axes"))
    axes = mesh.getWideAxes();
  calls.push_back({axes, reduction, 0, data, count});
  ++numCalls;
  numBytes += 8 * count;
}

bool Exchange::run(int64_t round, std::vector<Group> &groups) noexcept {
  calls.clear();
  packStatistics(round, groups);
  for (const Pack &pack : packs)
    if (pack.key.round == round && pack.memory)
      addCall(pack.key.axes, pack.key.maximum ? STEPC_MAX_I64 : STEPC_SUM_F64,
              pack.getEntries(0), pack.count);
  addCall(mesh.getWideAxes(), STEPC_SUM_F64, sums.data(), int64_t(sums.size()));
  addCall(mesh.getWideAxes(), STEPC_MAX_I64, maxima.data(),
          int64_t(maxima.size()));
  if (calls.empty())
    return true;
  ++numRounds;
  if (STEPC_FAULT("exchange-calls-reordered") &&
      mesh.isFirst(mesh.getWideAxes()))
    std::reverse(calls.begin(), calls.end());
  if (!call())
    return false;
  unpackStatistics(round, groups);
  return true;
}

bool Exchange::call() noexcept {
  const StepcCommunicator &communicator = mesh.getCommunicator();
  message[0] = '\0';
  int32_t code = -1;
  try {
    code = communicator.reduce(communicator.context, calls.data(),
                               int64_t(calls.size()), message, sizeof(message));
  } catch (...) {
    std::snprintf(message, sizeof(message), "the communicator threw");
  }
  if (code == 0)
    return true;
  message[sizeof(message) - 1] = '\0';
  if (!message[0])
    std::snprintf(message, sizeof(message), "the communicator returned %d",
                  int(code));
  return false;
}

size_t Exchange::getBytes() const {
  size_t bytes = packs.capacity() * sizeof(Pack) +
                 calls.capacity() * sizeof(StepcReduceCall) +
                 sums.capacity() * sizeof(double) +
                 maxima.capacity() * sizeof(int64_t);
  for (const Pack &pack : packs)
    bytes += pack.slices.capacity() * sizeof(Slice) +
             (pack.memory ? pack.memory->getSize() : 0);
  return bytes;
}
