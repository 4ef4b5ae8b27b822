//===- EngineStep.cpp - segments and rounds on the processor ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/Engine.h"

#include "core/Fault.h"
#include "core/FloatMode.h"
#include "core/Status.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <stdexcept>

using namespace stepc;
using namespace stepc::cpu;

/// Fills what a segment needs of the cohorts' rows.
void cpu::Engine::fillScalars(int64_t segment, bool activeOnly) {
  FloatMode mode;
  const std::vector<Group> &groups = model.groups;
  int32_t index = 0;
  for (const Cohort &cohort : model.cohorts.getList()) {
    const CohortKey &key = cohort.key;
    if (key.active || !activeOnly) {
      requireSteppable(key);
      const Group &group = groups[key.group];
      const double *hypers = group.hypers.data();
      const double *results = group.results.data();
      if (STEPC_FAULT("engine-hypers-of-another-group"))
        hypers = groups[0].hypers.data();
      if (STEPC_FAULT("engine-results-of-another-group"))
        results = groups[0].results.data();
      int64_t count = key.count + (STEPC_FAULT("engine-count-behind") ? 0 : 1);
      uint64_t flags =
          STEPC_FAULT("engine-fresh-inverted") ? ~key.fresh : key.fresh;
      if (auto function = code->getVariant(key.variant).scalars[segment])
        function(hypers, results, count, int64_t(flags),
                 model.cohorts.getScalars(index));
    }
    ++index;
  }
}

StepOutcome cpu::Engine::run(bool some) {
  outcome = {};
  if (!some)
    return outcome;
  rounds.begin();
  carried.begin();
  try {
    runListed();
  } catch (const Error &error) {
    failWithOthers(error);
  }
  if (outcome.kind == StepOutcome::Kind::Stepped)
    encodeShared();
  rounds.end(outcome.kind == StepOutcome::Kind::Skipped);
  return outcome;
}

void cpu::Engine::endStep() {
  carried.end(outcome.kind == StepOutcome::Kind::Skipped);
}

void cpu::Engine::runListed() {
  bool wide = model.exchange.isWide();
  StepWork work = {parts.data(), segments.data(), int64_t(segments.size()),
                   workWeight,   workspace,       wide,
                   trace};
  if (!(placed.any() ? runSegments(work) : workers.run(work, *this)))
    failMidway();
}

/// One by one, as those do that bring what they need into memory. Where the
/// store fails on one of several ranks, that one goes through the rounds that
/// the others wait in, of whose results it makes nothing.
bool cpu::Engine::runSegments(const StepWork &work) {
  FloatMode mode;
  placed.begin();
  std::optional<Error> failure;
  try {
    for (int64_t s = 0; s < work.numSegments; ++s) {
      try {
        if (!failure && !placed.run(work, work.segments[s], workers, *this))
          return false;
      } catch (const Error &error) {
        failure = error;
        if (!work.roundsWait)
          break;
      }
      if (s + 1 < work.numSegments && !runRound(s))
        break;
    }
  } catch (...) {
    return false;
  }
  if (failure)
    failPlaced(*failure, work.roundsWait && work.numSegments > 1);
  return true;
}

/// `crossed`: whether other ranks have had rounds with this one.
void cpu::Engine::failPlaced(const Error &error, bool crossed) {
  if (!placed.hasChanged() && !crossed)
    throw error;
  broken = true;
  fail(error.getStatus(), "%s; %s", error.what(),
       placed.hasChanged()
           ? "some tensors were stepped before, and others were not"
           : "other ranks have gone on");
}

void cpu::Engine::failMidway() {
  broken = true;
  if (failedRound >= 0)
    fail(STEPC_COMMUNICATION_ERROR, "round %lld of '%s': %s",
         static_cast<long long>(failedRound),
         model.getManifest().optimizer.c_str(), model.exchange.getMessage());
  fail(STEPC_INTERNAL_ERROR,
       "a kernel of package '%s' failed midway, the plan cannot be used any "
       "more",
       model.package->getName().c_str());
}

/// Where the store has failed, others come to the exchange at the end of the
/// step and wait there for this rank.
void cpu::Engine::failWithOthers(const Error &error) {
  if (error.getStatus() != STEPC_STORE_ERROR ||
      outcome.kind != StepOutcome::Kind::Stepped ||
      !model.exchange.hasPacks(model.getEndRound()))
    throw error;
  const bool told = broken;
  broken = true;
  encodeShared();
  if (told)
    throw error;
  fail(error.getStatus(), "%s; other ranks have gone on", error.what());
}

/// What a worker calls between two segments.
bool cpu::Engine::runRound(int64_t round) {
  ++model.numRounds;
  addContributions(round);
  rounds.combine(round);
  if (model.exchange.isWide() && !exchangeRound(round))
    return false;
  if (!rounds.run(round)) {
    outcome = {StepOutcome::Kind::Skipped, int32_t(round)};
    return false;
  }
  if (!STEPC_FAULT("engine-stale-scalars"))
    fillScalars(round + 1, /*activeOnly=*/true);
  return true;
}

/// Combines what crosses ranks; false where no tensor of any rank takes part.
bool cpu::Engine::exchangeRound(int64_t round) {
  Exchange &exchange = model.exchange;
  exchange.clearIdle(round,
                     [&](int64_t id) { return model.tensors[id].listed; });
  if (!exchange.run(round, model.groups)) {
    failedRound = round;
    // Ends the run of all workers; runListed() has the words.
    throw std::runtime_error("communication failed");
  }
  return !exchange.tellsActive(round) ||
         std::any_of(model.groups.begin(), model.groups.end(),
                     [](const Group &group) { return group.active; });
}

namespace {
/// The encoding of blocks that ranks share, in rows of states.
struct SharedWork {
  const std::vector<StateCodes> &codes;
  std::atomic<bool> alike = true;

  static void run(void *context, int index, int count) {
    auto &work = *static_cast<SharedWork *>(context);
    for (const StateCodes &state : work.codes) {
      if (!state.shared.any() || !state.shared.words)
        continue;
      int64_t rows = state.shared.rows;
      if (!state.encodeShared(rows * index / count, rows * (index + 1) / count))
        work.alike = false;
    }
  }
};
} // namespace

/// Behind the last segment. What ranks have of blocks that they share is
/// exchanged, of all tensors at once.
void cpu::Engine::encodeShared() {
  Exchange &exchange = model.exchange;
  const int64_t round = model.getEndRound();
  if (!exchange.hasPacks(round))
    return;
  if (broken)
    for (const StateCodes &state : model.codes)
      if (state.shared.any())
        state.shared.giveUp();
  if (!STEPC_FAULT("cut-codes-not-exchanged") &&
      !exchange.run(round, model.groups)) {
    broken = true;
    fail(STEPC_COMMUNICATION_ERROR, "codes of '%s': %s",
         model.getManifest().optimizer.c_str(), exchange.getMessage());
  }
  SharedWork work = {model.codes};
  int64_t bytes = 0;
  for (const StateCodes &state : model.codes)
    bytes += state.shared.countFloats() * int64_t(sizeof(float)) +
             state.shared.countWords() * int64_t(sizeof(int64_t));
  runShares(bytes, SharedWork::run, &work);
  // Where this rank's store has failed it has left tensors out, and says that.
  if (work.alike || broken)
    return;
  broken = true;
  fail(STEPC_COMMUNICATION_ERROR,
       "codes of '%s': of ranks that share blocks of codes some have stepped a "
       "tensor and others, which had no gradient of it, have not",
       model.getManifest().optimizer.c_str());
}

/// In the order of ids: the sums depend on it. All statistics of a tensor at
/// once, while its row and slots are in the cache.
void cpu::Engine::addContributions(int64_t round) {
  size_t numStatistics = model.getManifest().statistics.size();
  size_t begin = numStatistics, end = 0;
  for (size_t s = 0; s < numStatistics; ++s)
    if (rounds.isCombined(s, round)) {
      begin = std::min(begin, s);
      end = s + 1;
    }
  if (begin >= end)
    return;
  for (const BoundTensor &tensor : model.tensors)
    for (size_t s = begin; s < end; ++s)
      if (rounds.isCombined(s, round))
        rounds.add(
            s, tensor.group,
            reinterpret_cast<const double *>(model.getContribution(tensor, s)));
}
