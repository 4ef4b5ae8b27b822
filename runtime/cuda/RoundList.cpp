//===- RoundList.cpp - what rounds launch on a device ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/RoundList.h"

#include "core/Fault.h"
#include "core/Reserve.h"

#include "stepc/kernel_abi.h"

#include <cstring>

using namespace stepc;
using namespace stepc::cuda;

/// Words of an entry for statistics_sum and of one for a call (docs/cuda.md).
static constexpr size_t kSumWords = 4;
static constexpr size_t kCallWords = STEPC_ROUND_ENTRY_WORDS;
static constexpr auto kWordBytes = int64_t(sizeof(int64_t));

static size_t countCalls(const Manifest &manifest) {
  size_t count = 0;
  for (const Round &round : manifest.rounds)
    count += round.calls.size();
  return count;
}

ValueLayout::ValueLayout(const Manifest &manifest) {
  scalars = int64_t(manifest.numResults);
  statistics = scalars + int64_t(manifest.scalars.size());
  updated = statistics + int64_t(manifest.statistics.size());
  skips = updated + int64_t(manifest.scalars.size());
  words = skips + int64_t(countCalls(manifest));
}

RoundList::RoundList(const Manifest &manifest)
    : manifest(manifest), layout(manifest), crossing(manifest.rounds.size()) {
  for (const Round &round : manifest.rounds)
    for (const RoundCall &call : round.calls)
      skips |= call.maySkip;
}

size_t RoundList::countContributions(size_t tensors) const {
  return manifest.statistics.size() * tensors;
}

size_t RoundList::countWords(size_t tensors, size_t groups,
                             const Exchange *exchange) const {
  // Copies at the begin and at the end, of statistics, of what calls change.
  size_t scalars = manifest.scalars.size(), calls = countCalls(manifest);
  size_t statistics = manifest.statistics.size();
  size_t copies = 2 * scalars + statistics;
  for (const Round &round : manifest.rounds)
    for (const RoundCall &call : round.calls)
      copies += call.results.size() + 2 * call.updates.size();
  size_t crossing = 0;
  if (exchange) {
    copies += 2 * statistics;
    crossing = STEPC_FILL_ENTRY_WORDS * (exchange->countSlices() + groups);
  }
  return 1 + countContributions(tensors) + crossing +
         groups * (STEPC_COPY_ENTRY_WORDS * copies + kSumWords * statistics +
                   (kCallWords + 1) * calls);
}

size_t RoundList::countParts() const {
  return 3 + 10 * manifest.rounds.size() + 2 * countCalls(manifest);
}

void RoundList::reserve(size_t tensors, size_t groups,
                        const Exchange *exchange) {
  reserveAtLeast(words, countWords(tensors, groups, exchange));
  reserveAtLeast(parts, countParts());
  for (std::vector<int64_t> &entries : sums)
    reserveAtLeast(entries, kSumWords * manifest.statistics.size() * groups);
}

int64_t RoundList::getValue(int64_t group, int64_t word) const {
  return in->values + (group * layout.words + word) * kWordBytes;
}

void RoundList::addPart(RoundPart::Kind kind, int64_t round, size_t call,
                        size_t offset, size_t entryWords, bool always) {
  size_t entries = (words.size() - offset) / entryWords;
  if (entries)
    parts.push_back(
        {kind, round, call, int64_t(offset), int64_t(entries), always});
}

void RoundList::addCopy(int64_t from, int64_t to) {
  words.push_back(from);
  words.push_back(to);
}

/// A step works on a copy of the scalars.
void RoundList::addBegin() {
  size_t offset = words.size();
  for (int64_t g = 0; g < numGroups; ++g)
    for (size_t i = 0; i < manifest.scalars.size(); ++i)
      addCopy(getValue(g, layout.scalars + int64_t(i)),
              getValue(g, layout.updated + int64_t(i)));
  addPart(RoundPart::Kind::Copy, -1, 0, offset, STEPC_COPY_ENTRY_WORDS,
          /*always=*/true);
}

/// Lists what tensors contribute, all or those of the group, and an entry.
void RoundList::addSources(size_t statistic, int64_t group) {
  const Statistic &own = manifest.statistics[statistic];
  size_t tensors = in->groupOf.size(), offset = words.size();
  for (size_t t = 0; t < tensors; ++t)
    if (own.scope == Scope::Model || in->groupOf[t] == group)
      words.push_back(in->contributions[statistic * tensors + t]);
  auto count = int64_t(words.size() - offset);
  for (int64_t word :
       {in->list + int64_t(offset) * kWordBytes, count,
        in->scratch + numContributions * kWordBytes,
        getValue(STEPC_FAULT("device-statistic-of-another-group") ? 0 : group,
                 layout.statistics + int64_t(statistic))})
    sums[own.maximum].push_back(word);
  numContributions += count;
}

void RoundList::addStatistics(int64_t round) {
  for (std::vector<int64_t> &entries : sums)
    entries.clear();
  for (size_t s = 0; s < manifest.statistics.size(); ++s) {
    const Statistic &statistic = manifest.statistics[s];
    if (statistic.segment != round)
      continue;
    int64_t count = statistic.scope == Scope::Model ? 1 : numGroups;
    for (int64_t g = 0; g < count; ++g)
      addSources(s, g);
  }
  for (int maximum = 0; maximum < 2; ++maximum) {
    size_t offset = words.size();
    words.insert(words.end(), sums[maximum].begin(), sums[maximum].end());
    addPart(maximum ? RoundPart::Kind::Amax : RoundPart::Kind::Sum, round, 0,
            offset, kSumWords);
  }
}

/// What was combined for the model, to all groups.
void RoundList::shareStatistics(int64_t round) {
  size_t offset = words.size();
  for (size_t s = 0; s < manifest.statistics.size(); ++s)
    if (manifest.statistics[s].segment == round &&
        manifest.statistics[s].scope == Scope::Model)
      for (int64_t g = 1; g < numGroups; ++g)
        addCopy(getValue(0, layout.statistics + int64_t(s)),
                getValue(g, layout.statistics + int64_t(s)));
  addPart(RoundPart::Kind::Copy, round, 0, offset, STEPC_COPY_ENTRY_WORDS);
}

/// Gives the words of the round their places, the sums before the maxima.
void RoundList::placeCrossing(int64_t round) {
  PackedWords own;
  in->exchange->forEachWord(round, size_t(numGroups),
                            [&](const PackedWord &word) {
                              ++(word.maximum ? own.numMaxima : own.numSums);
                            });
  own.sums = uintptr_t(in->crossing + numCrossing * kWordBytes);
  own.maxima = own.sums + uintptr_t(own.numSums * kWordBytes);
  numCrossing += own.numSums + own.numMaxima;
  crossing[size_t(round)] = own;
}

/// Visits the words that cross beside buffers with their addresses.
template <typename Visit>
void RoundList::forEachCrossing(int64_t round, Visit &&visit) const {
  const PackedWords &own = crossing[size_t(round)];
  int64_t next[2] = {int64_t(own.sums), int64_t(own.maxima)};
  in->exchange->forEachWord(round, size_t(numGroups),
                            [&](const PackedWord &word) {
                              visit(word, next[word.maximum]);
                              next[word.maximum] += kWordBytes;
                            });
}

/// Buffers of tensors that take no part, and which groups do, as a number of
/// the kind that crosses.
void RoundList::addFills(int64_t round) {
  size_t offset = words.size();
  for (const IdleBuffer &buffer : in->idle)
    if (buffer.round == round && !STEPC_FAULT("device-idle-not-neutral"))
      words.insert(words.end(), {buffer.address, buffer.count, buffer.word});
  int64_t oneBits = getBits(1.0);
  forEachCrossing(round, [&](const PackedWord &word, int64_t address) {
    if (word.statistic >= 0)
      return;
    if (word.group == 0)
      activeWords = address;
    int64_t set = word.maximum ? 1 : oneBits;
    words.insert(words.end(), {address, 1, in->active[word.group] ? set : 0});
  });
  addPart(RoundPart::Kind::Fill, round, 0, offset, STEPC_FILL_ENTRY_WORDS);
}

/// Whether what crosses is the integer that orders as the f64 does.
static bool isOrdered(bool maximum) {
  return maximum && !STEPC_FAULT("device-maximum-not-ordered");
}

void RoundList::addPacked(int64_t round, bool maximum) {
  size_t offset = words.size();
  forEachCrossing(round, [&](const PackedWord &word, int64_t address) {
    if (word.statistic >= 0 && word.maximum == maximum)
      addCopy(getValue(int64_t(word.group), layout.statistics + word.statistic),
              address);
  });
  addPart(isOrdered(maximum) ? RoundPart::Kind::Order : RoundPart::Kind::Copy,
          round, 0, offset, STEPC_COPY_ENTRY_WORDS);
}

/// What is of the model, to all groups.
void RoundList::addUnpacked(int64_t round, bool maximum) {
  size_t offset = words.size();
  forEachCrossing(round, [&](const PackedWord &word, int64_t address) {
    if (word.statistic < 0 || word.maximum != maximum)
      return;
    bool ofModel =
        manifest.statistics[size_t(word.statistic)].scope == Scope::Model;
    auto begin = int64_t(word.group);
    for (int64_t g = begin; g < (ofModel ? numGroups : begin + 1); ++g)
      addCopy(address, getValue(g, layout.statistics + word.statistic));
  });
  addPart(isOrdered(maximum) ? RoundPart::Kind::Unorder : RoundPart::Kind::Copy,
          round, 0, offset, STEPC_COPY_ENTRY_WORDS);
}

/// The calls are made in a step that is skipped, too: other ranks make them.
void RoundList::addExchange(int64_t round) {
  placeCrossing(round);
  addFills(round);
  for (bool maximum : {false, true})
    addPacked(round, maximum);
  parts.push_back({RoundPart::Kind::Exchange, round, 0, 0, 1, /*always=*/true});
  for (bool maximum : {false, true})
    addUnpacked(round, maximum);
}

/// The flags of a call for `count` groups: whether one takes part anywhere. On
/// a rank alone the host knows, and the first word of the list is 1.
void RoundList::addFlags(int64_t group, int64_t count) {
  if (!activeWords) {
    words.push_back(in->list);
    words.push_back(1);
    return;
  }
  words.push_back(activeWords + group * kWordBytes);
  words.push_back(count);
}

/// Whether there is an entry for the group, or the model as group 0.
bool RoundList::isCalled(const RoundCall &call, int64_t group) const {
  if (call.scope == Scope::Model)
    return group == 0;
  bool anywhere = activeWords && !STEPC_FAULT("device-active-groups-of-rank");
  return anywhere || in->active[size_t(group)];
}

/// A call for the model works on the first group, and all get what it did.
void RoundList::addCall(int64_t round, size_t call, int64_t number) {
  const RoundCall &own = manifest.rounds[size_t(round)].calls[call];
  bool ofModel = own.scope == Scope::Model;
  size_t offset = words.size();
  for (int64_t g = 0; g < (ofModel ? 1 : numGroups); ++g) {
    if (!isCalled(own, g) && !STEPC_FAULT("device-idle-group-runs"))
      continue;
    int64_t hypers = in->groups + g * in->groupWords * kWordBytes;
    words.insert(words.end(),
                 {hypers, hypers + int64_t(manifest.hypers.size()) * kWordBytes,
                  getValue(g, layout.statistics), getValue(g, layout.scalars),
                  getValue(g, 0), getValue(g, layout.updated),
                  getValue(g, layout.skips + number)});
    addFlags(g, ofModel ? numGroups : 1);
  }
  addPart(RoundPart::Kind::Call, round, call, offset, kCallWords);
  offset = words.size();
  for (int64_t g = 1; ofModel && g < numGroups; ++g) {
    for (size_t result : own.results)
      addCopy(getValue(0, int64_t(result)), getValue(g, int64_t(result)));
    for (const RoundCall::Update &update : own.updates)
      addCopy(getValue(0, layout.updated + int64_t(update.scalar)),
              getValue(g, layout.updated + int64_t(update.scalar)));
  }
  if (STEPC_FAULT("device-results-not-shared"))
    words.resize(offset);
  addPart(RoundPart::Kind::Copy, round, call, offset, STEPC_COPY_ENTRY_WORDS);
}

/// What the calls of the round say that may skip.
void RoundList::addDecide(int64_t round, int64_t firstCall) {
  const std::vector<RoundCall> &calls = manifest.rounds[size_t(round)].calls;
  size_t offset = words.size();
  for (size_t i = 0; i < calls.size(); ++i)
    for (int64_t g = 0; calls[i].maySkip && g < numGroups; ++g)
      if (isCalled(calls[i], g))
        words.push_back(getValue(g, layout.skips + firstCall + int64_t(i)));
  addPart(RoundPart::Kind::Decide, round, 0, offset, 1, /*always=*/true);
}

/// Takes over the scalars: those that are always updated, or all others.
void RoundList::addEnd(bool always) {
  size_t offset = words.size();
  for (const Round &round : manifest.rounds)
    for (const RoundCall &call : round.calls)
      for (const RoundCall::Update &update : call.updates)
        if (update.always == always)
          for (int64_t g = 0; g < numGroups; ++g)
            addCopy(getValue(g, layout.updated + int64_t(update.scalar)),
                    getValue(g, layout.scalars + int64_t(update.scalar)));
  addPart(RoundPart::Kind::Copy, int64_t(manifest.rounds.size()), 0, offset,
          STEPC_COPY_ENTRY_WORDS,
          always && !STEPC_FAULT("device-always-update-lost"));
}

void RoundList::make(const RoundInputs &inputs) {
  in = &inputs;
  numGroups = int64_t(inputs.active.size());
  numContributions = 0;
  numCrossing = 0;
  activeWords = 0;
  words.clear();
  parts.clear();
  // What always runs has the first word for its flag.
  words.push_back(1);
  addBegin();
  int64_t number = 0;
  for (size_t r = 0; r < manifest.rounds.size(); ++r) {
    auto round = int64_t(r);
    addStatistics(round);
    if (in->exchange)
      addExchange(round);
    else
      shareStatistics(round);
    size_t calls = manifest.rounds[r].calls.size();
    for (size_t i = 0; i < calls; ++i)
      addCall(round, i, number + int64_t(i));
    addDecide(round, number);
    number += int64_t(calls);
  }
  addEnd(/*always=*/true);
  addEnd(/*always=*/false);
  in = nullptr;
}
