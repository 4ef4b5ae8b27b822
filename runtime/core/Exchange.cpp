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
#include <utility>

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
  size_t most = countWords(numGroups);
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
  reserveAtLeast(replaced, replaced.size() + packs.size());
  for (Pack &pack : packs) {
    reserveAtLeast(pack.slices, pack.slices.size() + pack.newSlices);
    int64_t needed, capacity = pack.getCapacity();
    if (__builtin_add_overflow(pack.count, pack.newEntries, &needed) ||
        needed > INT64_MAX / 16)
      throw std::bad_alloc();
    pack.grown = {};
    if (pack.newSlices == 0 || (pack.memory.size && needed <= capacity))
      continue;
    pack.grown =
        takeMemory(size_t(std::max<int64_t>({needed, 2 * capacity, 8})) * 8);
  }
}

void Exchange::add(const PackKey &key, int64_t tensor, int64_t word,
                   int64_t entries) noexcept {
  Pack &pack = findPack(key);
  if (pack.grown.size) {
    // What was in it is of no use between steps.
    if (pack.memory.size)
      replaced.push_back(std::move(pack.memory));
    pack.memory = std::exchange(pack.grown, {});
    pack.numPlaced = 0;
  }
  pack.slices.push_back({tensor, word, pack.count, entries});
  pack.count += entries;
  if (STEPC_FAULT("exchange-places-overlap") && entries > 1)
    --pack.count;
}

size_t Exchange::countSlices() const {
  size_t count = 0;
  for (const Pack &pack : packs)
    count += pack.slices.size() + pack.newSlices;
  return count;
}

int64_t Exchange::getNeutral(bool maximum) noexcept {
  // The bits of +0.0.
  return maximum ? toOrderedInteger(-kInfinity) : 0;
}

void Exchange::clear(uintptr_t address, int64_t count, int64_t word) noexcept {
  if (!STEPC_FAULT("exchange-idle-not-neutral"))
    std::fill_n(reinterpret_cast<int64_t *>(address), count, word);
}

bool Exchange::isCombined(size_t statistic, int64_t round) const {
  return manifest.statistics[statistic].segment == round &&
         !STEPC_FAULT("exchange-statistics-not-reduced");
}

bool Exchange::hasStatistic(int64_t round, bool maximum) const {
  for (size_t s = 0; s < manifest.statistics.size(); ++s)
    if (isCombined(s, round) && manifest.statistics[s].maximum == maximum)
      return true;
  return false;
}

void Exchange::packWords(int64_t round, std::vector<Group> &groups) noexcept {
  sums.clear();
  maxima.clear();
  forEachWord(round, groups.size(), [&](const PackedWord &word) {
    const Group &group = groups[word.group];
    if (word.statistic < 0 && word.maximum)
      maxima.push_back(group.active);
    else if (word.statistic < 0)
      sums.push_back(group.active);
    else if (word.maximum)
      maxima.push_back(
          toOrderedInteger(group.statistics[size_t(word.statistic)]));
    else
      sums.push_back(group.statistics[size_t(word.statistic)]);
  });
}

void Exchange::unpackWords(int64_t round, std::vector<Group> &groups) noexcept {
  const double *sum = sums.data();
  const int64_t *maximum = maxima.data();
  forEachWord(round, groups.size(), [&](const PackedWord &word) {
    if (word.statistic < 0) {
      bool active = word.maximum ? *maximum++ != 0 : *sum++ != 0.0;
      if (!STEPC_FAULT("shard-active-groups-of-rank"))
        groups[word.group].active = active;
      return;
    }
    auto s = size_t(word.statistic);
    double value = word.maximum ? fromOrderedInteger(*maximum++) : *sum++;
    groups[word.group].statistics[s] = value;
    if (manifest.statistics[s].scope == Scope::Model)
      for (Group &group : groups)
        group.statistics[s] = value;
  });
}

void Exchange::addCall(uint64_t axes, StepcReduction reduction, uintptr_t data,
                       int64_t count) noexcept {
  if (axes == 0 || count == 0)
    return;
  if (STEPC_FAULT("exchange-call-left-out") && calls.size() == 1)
    return;
  if (STEPC_FAULT("exchange-wrong-axes"))
    axes = mesh.getWideAxes();
  calls.push_back({axes, reduction, 0, reinterpret_cast<void *>(data), count});
}

void Exchange::listCalls(int64_t round, const PackedWords &words) noexcept {
  calls.clear();
  for (const Pack &pack : packs)
    if (pack.key.round == round && pack.memory.size)
      addCall(pack.key.axes, pack.key.maximum ? STEPC_MAX_I64 : STEPC_SUM_F64,
              pack.getAddress(0), pack.count);
  addCall(mesh.getWideAxes(), STEPC_SUM_F64, words.sums, words.numSums);
  addCall(mesh.getWideAxes(), STEPC_MAX_I64, words.maxima, words.numMaxima);
}

void Exchange::countCalls() noexcept {
  ++numRounds;
  numCalls += int64_t(calls.size());
  for (const StepcReduceCall &call : calls)
    numBytes += 8 * call.count;
}

bool Exchange::run(int64_t round, std::vector<Group> &groups) noexcept {
  packWords(round, groups);
  listCalls(round,
            {reinterpret_cast<uintptr_t>(sums.data()), int64_t(sums.size()),
             reinterpret_cast<uintptr_t>(maxima.data()),
             int64_t(maxima.size())});
  if (calls.empty())
    return true;
  countCalls();
  if (STEPC_FAULT("exchange-calls-reordered") &&
      mesh.isFirst(mesh.getWideAxes()))
    std::reverse(calls.begin(), calls.end());
  const StepcCommunicator &communicator = mesh.getCommunicator();
  if (!callCommunicator([&] {
        return communicator.reduce(communicator.context, calls.data(),
                                   int64_t(calls.size()), message,
                                   sizeof(message));
      }))
    return false;
  unpackWords(round, groups);
  return true;
}

bool Exchange::enqueue(int64_t round, const PackedWords &words, void *stream,
                       bool counts) noexcept {
  listCalls(round, words);
  if (calls.empty())
    return true;
  if (counts)
    countCalls();
  const StepcCommunicator &communicator = mesh.getCommunicator();
  return callCommunicator([&] {
    return communicator.enqueue(communicator.context, calls.data(),
                                int64_t(calls.size()), stream, message,
                                sizeof(message));
  });
}

bool Exchange::wait(void *stream) noexcept {
  const StepcCommunicator &communicator = mesh.getCommunicator();
  if (!isWide() || !communicator.wait)
    return true;
  return callCommunicator([&] {
    return communicator.wait(communicator.context, stream, message,
                             sizeof(message));
  });
}

/// Whether the call succeeds; else there is a message.
template <typename Call>
bool Exchange::callCommunicator(Call &&call) noexcept {
  message[0] = '\0';
  int32_t code = 0;
  try {
    code = call();
    if (code == mesh.getCommunicator().success)
      return true;
  } catch (...) {
    std::snprintf(message, sizeof(message), "the communicator threw");
  }
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
    bytes += pack.slices.capacity() * sizeof(Slice);
  return bytes;
}

size_t Exchange::getPackBytes() const {
  size_t bytes = 0;
  for (const Pack &pack : packs)
    bytes += pack.memory.size;
  for (const Memory &memory : replaced)
    bytes += memory.size;
  return bytes;
}
