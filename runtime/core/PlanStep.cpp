//===- PlanStep.cpp - steps -----------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Fault.h"
#include "core/Plan.h"
#include "core/Status.h"
#include "cpu/FloatMode.h"

#include <algorithm>
#include <stdexcept>

using namespace stepc;

void Plan::checkOverlap() {
  if (!overlapUnchecked)
    return;
  overlapChecker.clear();
  for (size_t id = 0; id < tensors.size(); ++id)
    addViews(int64_t(id), 0, UINTPTR_MAX, /*writtenOnly=*/false);
  const OwnedView *first, *second;
  if (overlapChecker.find(first, second))
    fail(STEPC_OVERLAP, "%s and %s share memory", describeView(*first).c_str(),
         describeView(*second).c_str());
  overlapUnchecked = false;
}

/// Where a cohort's row of scalars is, for kernels.
uintptr_t Plan::getScalars(int32_t cohort) noexcept {
  if (device)
    return uintptr_t(device->getScalars(cohort));
  return reinterpret_cast<uintptr_t>(cohorts.getScalars(cohort));
}

void Plan::formCohorts() noexcept {
  cohorts.clear();
  for (size_t id = 0; id < tensors.size(); ++id) {
    const BoundTensor &tensor = tensors[id];
    cohortOf[id] = cohorts.add(
        {tensor.variant, tensor.group, counts[id], fresh[id], tensor.hasGrad});
    getRow(tensor)[STEPC_ROW_SCALARS] = int64_t(getScalars(cohortOf[id]));
  }
  cohortsValid = true;
}

void Plan::listActive() noexcept {
  for (RowClass &rows : classes)
    rows.clearList();
  listedIds.clear();
  for (size_t id = 0; id < tensors.size(); ++id) {
    BoundTensor &tensor = tensors[id];
    tensor.listed = tensor.hasGrad;
    if (!tensor.listed)
      continue;
    listedIds.push_back(int64_t(id));
    classes[tensor.rowClass].listRow(tensor.row, tensor.size);
  }
  numToggled = 0;
  listWork();
  listsValid = true;
}

/// Gathers what the classes list into the engine's work.
void Plan::listWork() noexcept {
  deviceStep.chunksChanged = true;
  if (device)
    return;
  parts.clear();
  segments.clear();
  workWeight = 0;
  for (RowClass &rows : classes)
    rows.finishList();
  for (int64_t s = 0; s < package->getManifest().getNumSegments(); ++s) {
    WorkSegment segment = {int64_t(parts.size()), 0, 0};
    for (size_t c = 0; c < classes.size(); ++c)
      if (classes[c].hasList())
        listPart(s, c, segment.weight);
    segment.endPart = int64_t(parts.size());
    segments.push_back(segment);
  }
}

/// Adds what a class does in a segment; `line` is the weight of the segment's
/// line so far.
void Plan::listPart(int64_t segment, size_t rowClass, int64_t &line) noexcept {
  size_t variant = rowClass / 2;
  const ClassSegment &own =
      classSegments[variant * package->getManifest().getNumSegments() +
                    segment];
  if (own.beginEntry == own.endEntry)
    return;
  const RowClass &rows = classes[rowClass];
  WorkPart part = {};
  part.entries =
      package->getCode(variant).entries[rowClass % 2].data() + own.beginEntry;
  part.numEntries = own.endEntry - own.beginEntry;
  part.whole = own.whole;
  part.before = line;
  part.elementWeight = own.elementBytes;
  rows.describe(part);
  line = part.getWeightBefore(part.getNumItems());
  workWeight += rows.getListedElements() * own.elementBytes +
                part.numChunks * part.itemWeight;
  parts.push_back(part);
}

void Plan::prepareStep() {
  checkOverlap();
  if (groupsUnchecked) {
    rounds.requireEqualGroups();
    groupsUnchecked = false;
  }
  if (cohortsValid && listsValid && numToggled == 0)
    return;
  if (device)
    takeCounts();
  formCohorts();
  listActive();
  for (Group &group : groups)
    group.activeHere = false;
  for (int64_t id : listedIds)
    groups[tensors[id].group].activeHere = true;
}

/// Fills what a segment needs of the cohorts' rows.
void Plan::fillScalars(int64_t segment, bool activeOnly) {
  FloatMode mode;
  int32_t index = 0;
  for (const Cohort &cohort : cohorts.getList()) {
    const CohortKey &key = cohort.key;
    if (key.active || !activeOnly) {
      if (key.count > kMaxCount)
        fail(STEPC_WRONG_STATE, "a tensor has count %lld, it cannot be stepped",
             static_cast<long long>(key.count));
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
      if (auto function = package->getCode(key.variant).scalars[segment])
        function(hypers, results, count, int64_t(flags),
                 cohorts.getScalars(index));
    }
    ++index;
  }
}

void Plan::runListed() {
  if (device)
    return runOnDevice();
  StepWork work = {parts.data(), segments.data(), int64_t(segments.size()),
                   workWeight,   workspace,       exchange.isWide(),
                   trace};
  if (engine.run(work, *this))
    return;
  poisoned = true;
  if (failedRound >= 0)
    fail(STEPC_COMMUNICATION_ERROR, "round %lld of '%s': %s",
         static_cast<long long>(failedRound),
         package->getManifest().optimizer.c_str(), exchange.getMessage());
  fail(STEPC_INTERNAL_ERROR,
       "a kernel of package '%s' failed midway, the plan cannot be used any "
       "more",
       package->getName().c_str());
}

/// What the engine calls between two segments.
bool Plan::runRound(int64_t round) {
  ++numRounds;
  addContributions(round);
  rounds.combine(round);
  if (exchange.isWide() && !exchangeRound(round))
    return false;
  if (!rounds.run(round)) {
    lastStep.skipped = 1;
    lastStep.skippedRound = int32_t(round);
    return false;
  }
  if (!STEPC_FAULT("engine-stale-scalars"))
    fillScalars(round + 1, /*activeOnly=*/true);
  return true;
}

/// Combines what crosses ranks; false where no tensor of any rank takes part.
bool Plan::exchangeRound(int64_t round) {
  exchange.clearIdle(round, [&](int64_t id) { return tensors[id].listed; });
  if (!exchange.run(round, groups)) {
    failedRound = round;
    // Ends the run of all workers; runListed() has the words.
    throw std::runtime_error("communication failed");
  }
  return !exchange.tellsActive(round) ||
         std::any_of(groups.begin(), groups.end(),
                     [](const Group &group) { return group.active; });
}

/// What the tensor contributes on this rank, or null: nothing. A maximum is of
/// all that have the same, as counting twice changes none: so an overflow that
/// one of them alone has, from a fault of its own, is one.
const double *Plan::getContribution(const BoundTensor &tensor,
                                    const ContributedSlot &own) const {
  uint64_t partial = own.partial;
  if (STEPC_FAULT("shard-part-over-one-dim-counted-over-all") && partial)
    partial = ~uint64_t(0);
  bool counts =
      own.maximum || (!tensor.isCopy && !(tensor.laterDims & ~partial));
  if (own.slot < 0 || !counts ||
      (!tensor.listed && !STEPC_FAULT("engine-statistic-of-idle-tensor")))
    return nullptr;
  return reinterpret_cast<const double *>(getRow(tensor)[STEPC_TILE_SLOTS]) +
         own.slot;
}

/// In the order of ids: the sums depend on it. All statistics of a tensor at
/// once, while its row and slots are in the cache.
void Plan::addContributions(int64_t round) {
  size_t numStatistics = package->getManifest().statistics.size();
  size_t begin = numStatistics, end = 0;
  for (size_t s = 0; s < numStatistics; ++s)
    if (rounds.isCombined(s, round)) {
      begin = std::min(begin, s);
      end = s + 1;
    }
  if (begin >= end)
    return;
  for (const BoundTensor &tensor : tensors) {
    const ContributedSlot *own =
        contributionSlots.data() + size_t(tensor.variant) * numStatistics;
    for (size_t s = begin; s < end; ++s)
      if (rounds.isCombined(s, round))
        rounds.add(s, tensor.group, getContribution(tensor, own[s]));
  }
}

/// Whether other ranks may have what takes part, and wait for this one.
bool Plan::isWaitedFor() const {
  return exchange.isWide() && rounds.any() && !groups.empty();
}

void Plan::step() {
  requireNoStep("stepcStep");
  if (device)
    return stepOnDevice();
  prepareStep();
  fillScalars(0, /*activeOnly=*/true);
  lastStep = {};
  lastStep.skippedRound = -1;
  lastStep.numTensors = int64_t(listedIds.size());
  // Where nothing takes part nothing happens, rounds included.
  if (!listedIds.empty() || isWaitedFor()) {
    rounds.begin();
    beginCarriedCheck();
    runListed();
    rounds.end(lastStep.skipped != 0);
  }
  if (lastStep.skipped)
    ++numSkipped;
  if (!lastStep.skipped || STEPC_FAULT("engine-count-on-skip"))
    countStep();
  ++numSteps;
  endCarriedCheck();
}

/// Counts a step of all listed tensors, which are whole cohorts.
void Plan::countStep() noexcept {
  bool someFresh = false;
  for (Cohort &cohort : cohorts.getList()) {
    if (!cohort.key.active)
      continue;
    someFresh |= cohort.key.fresh != 0;
    cohort.key.fresh = STEPC_FAULT("engine-fresh-for-ever") ? ~uint64_t(0) : 0;
    if (!STEPC_FAULT("engine-cohort-not-counted"))
      ++cohort.key.count;
  }
  if (listedIds.size() == tensors.size() ||
      STEPC_FAULT("engine-idle-tensor-counts"))
    for (int64_t &count : counts)
      ++count;
  else
    for (int64_t id : listedIds)
      ++counts[id];
  if (someFresh)
    for (int64_t id : listedIds)
      fresh[id] = 0;
  if (hasMirrors)
    for (int64_t id : listedIds)
      if (mirrors[id])
        *mirrors[id] = float(counts[id]);
}

void Plan::stepBegin() {
  requireNoStep("stepcStepBegin");
  checkOverlap();
  // For tensors without a gradient too: they may get one before the end.
  if (device) {
    fillOnDevice();
  } else {
    if (!cohortsValid)
      formCohorts();
    fillScalars(0, /*activeOnly=*/false);
  }
  inStep = true;
}

void Plan::stepTensors(const int64_t *ids, int64_t size) {
  if (!inStep)
    fail(STEPC_WRONG_STATE, "stepcStepTensors without stepcStepBegin");
  if (size < 0 || (size > 0 && !ids))
    fail(STEPC_INVALID_ARGUMENT, "%lld tensors were given, without ids",
         static_cast<long long>(size));
  checkOverlap();
  int64_t marked = 0;
  try {
    for (; marked < size; ++marked) {
      requireSteppable(ids[marked]);
      tensors[ids[marked]].stepped = true;
    }
  } catch (...) {
    while (marked-- > 0)
      tensors[ids[marked]].stepped = false;
    throw;
  }

  for (RowClass &rows : classes)
    rows.clearList();
  for (int64_t i = 0; i < size; ++i) {
    const BoundTensor &tensor = tensors[ids[i]];
    classes[tensor.rowClass].listRow(tensor.row, tensor.size);
    ++cohorts[cohortOf[ids[i]]].stepped;
    steppedIds.push_back(ids[i]);
  }
  listsValid = false;
  listWork();
  runListed();
}

void Plan::requireSteppable(int64_t id) const {
  requireId(id);
  const BoundTensor &tensor = tensors[id];
  if (!getVariant(tensor).subsets || rounds.any())
    fail(STEPC_WRONG_STATE,
         "optimizer '%s' steps all tensors at once, use stepcStep",
         package->getManifest().optimizer.c_str());
  if (!tensor.hasGrad)
    fail(STEPC_WRONG_STATE, "tensor %s has no gradient", names[id].c_str());
  if (tensor.stepped)
    fail(STEPC_WRONG_STATE, "tensor %s has been stepped since stepcStepBegin",
         names[id].c_str());
}

void Plan::stepEnd() {
  if (!inStep)
    fail(STEPC_WRONG_STATE, "stepcStepEnd without stepcStepBegin");
  for (int64_t id : steppedIds) {
    tensors[id].stepped = false;
    fresh[id] = 0;
    ++counts[id];
    if (mirrors[id])
      *mirrors[id] = float(counts[id]);
  }
  int64_t numStepped = int64_t(steppedIds.size());
  steppedIds.clear();
  for (Cohort &cohort : cohorts.getList()) {
    // A cohort of which only a part was stepped falls apart.
    if (cohort.stepped == cohort.members) {
      ++cohort.key.count;
      cohort.key.fresh = 0;
    } else if (cohort.stepped != 0) {
      cohortsValid = false;
    }
    cohort.stepped = 0;
  }
  lastStep = {};
  lastStep.skippedRound = -1;
  lastStep.numTensors = numStepped;
  inStep = false;
  ++numSteps;
}
