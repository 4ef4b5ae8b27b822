//===- PlanStep.cpp - steps ---------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Fault.h"
#include "core/Plan.h"
#include "core/Status.h"

using namespace stepc;

void Plan::checkOverlap() {
  if (!overlapUnchecked)
    return;
  overlapChecker.clear();
  for (size_t id = 0; id < model.tensors.size(); ++id)
    addViews(int64_t(id), 0, UINTPTR_MAX, /*writtenOnly=*/false);
  const OwnedView *first, *second;
  if (overlapChecker.find(first, second))
    fail(STEPC_OVERLAP, "%s and %s share memory", describeView(*first).c_str(),
         describeView(*second).c_str());
  overlapUnchecked = false;
}

/// Refuses a step of which the caller has set up something wrong.
void Plan::checkStep() {
  checkOverlap();
  if (!groupsUnchecked)
    return;
  model.rounds.requireEqualGroups();
  groupsUnchecked = false;
}

void Plan::prepareStep() {
  checkStep();
  if (model.areListsValid())
    return;
  engine->takeCounts();
  model.formCohorts(engine->getScalarRows());
  model.listActive();
  engine->listsChanged();
}

void Plan::step() {
  requireNoStep("stepcStep");
  engine->requireStep();
  if (transfers.any())
    return stepWithTransfers();
  prepareStep();
  engine->prepare();
  countWhole(runWhole());
}

/// Where nothing takes part nothing happens, rounds included.
StepOutcome Plan::runWhole() {
  return engine->run(!model.listedIds.empty() || model.isWaitedFor());
}

void Plan::countWhole(const StepOutcome &outcome) {
  using Kind = StepOutcome::Kind;
  lastStep = {};
  lastStep.skipped = outcome.kind == Kind::Skipped;
  lastStep.skippedRound = outcome.skippedRound;
  lastStep.numTensors = int64_t(model.listedIds.size());
  if (outcome.kind == Kind::Captured)
    return;
  bool skipped = outcome.kind == Kind::Skipped;
  numSkipped += skipped;
  if (outcome.kind == Kind::Stepped ||
      (skipped && STEPC_FAULT("engine-count-on-skip")))
    model.countStep();
  ++numSteps;
  engine->endStep();
}

void Plan::stepBegin() {
  requireNoStep("stepcStepBegin");
  renewTransfers();
  checkOverlap();
  engine->requireParts();
  engine->takeCounts();
  if (!model.cohortsValid)
    model.formCohorts(engine->getScalarRows());
  engine->beginParts();
  transfers.begin(/*isPass=*/false, /*allTogether=*/false, findsUnused);
  written = false;
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
      model.tensors[ids[marked]].stepped = true;
    }
  } catch (...) {
    while (marked-- > 0)
      model.tensors[ids[marked]].stepped = false;
    throw;
  }

  partIds.assign(ids, ids + size);
  stepListed(partIds);
}

/// Steps these, which are marked. Where the store fails, and other ranks have
/// made their part of the step, nothing is stepped any more, and what they wait
/// for goes on: refuseFailure() tells in the end.
void Plan::stepListed(const std::vector<int64_t> &ids) {
  if (failure)
    for (int64_t id : ids)
      model.tensors[id].stepped = false;
  if (ids.empty() || failure)
    return;
  written = true;
  for (int64_t id : ids) {
    ++model.cohorts[model.cohortOf[id]].stepped;
    steppedIds.push_back(id);
  }
  model.listParts(ids.data(), int64_t(ids.size()));
  engine->listsChanged();
  try {
    engine->runParts();
  } catch (const Error &error) {
    unmarkListed(ids);
    if (error.getStatus() != STEPC_STORE_ERROR || !othersWait())
      throw;
    failure = error;
  } catch (...) {
    unmarkListed(ids);
    throw;
  }
}

/// Behind all that other ranks have waited for.
void Plan::refuseFailure() {
  if (!failure)
    return;
  Error error = *failure;
  failure.reset();
  fail(error.getStatus(), "%s; other ranks have gone on", error.what());
}

/// These have not been stepped after all. Other ranks may have made their part
/// of the step, or wait for this one.
void Plan::unmarkListed(const std::vector<int64_t> &ids) noexcept {
  for (int64_t id : ids) {
    model.tensors[id].stepped = false;
    --model.cohorts[model.cohortOf[id]].stepped;
  }
  steppedIds.resize(steppedIds.size() - ids.size());
  if (othersWait())
    engine->poison();
}

void Plan::requireSteppable(int64_t id) const {
  requireId(id);
  const BoundTensor &tensor = model.tensors[id];
  const char *name = model.names[id].c_str();
  // Where a bucket is not stepped as it lands all are stepped by the end.
  if (!getVariant(tensor).subsets || model.rounds.any() ||
      (transfers.any() && !transfers.permitsParts()))
    fail(STEPC_WRONG_STATE,
         "optimizer '%s' steps all tensors at once, use stepcStep",
         model.getManifest().optimizer.c_str());
  if (tensor.entry >= 0)
    fail(STEPC_WRONG_STATE,
         "tensor %s was bound with an entry, use stepcGradReady", name);
  if (!tensor.hasGrad)
    fail(STEPC_WRONG_STATE, "tensor %s has no gradient", name);
  if (tensor.stepped)
    fail(STEPC_WRONG_STATE, "tensor %s has been stepped since stepcStepBegin",
         name);
}

void Plan::stepEnd() {
  if (!inStep)
    fail(STEPC_WRONG_STATE, "stepcStepEnd without stepcStepBegin");
  if (transfers.any())
    return stepNamed();
  finishParts();
  endParts();
  refuseFailure();
}

/// Where it throws, ranks do not have the same step.
void Plan::finishParts() {
  try {
    engine->finishParts();
  } catch (...) {
    failure.reset();
    dropParts();
    engine->poison();
    throw;
  }
}

void Plan::endParts() noexcept {
  for (int64_t id : steppedIds) {
    model.tensors[id].stepped = false;
    model.fresh[id] = 0;
    ++model.counts[id];
    model.setMirror(id);
  }
  lastStep = {};
  lastStep.skippedRound = -1;
  lastStep.numTensors = int64_t(steppedIds.size());
  steppedIds.clear();
  for (Cohort &cohort : model.cohorts.getList()) {
    // A cohort of which only a part was stepped falls apart.
    if (cohort.stepped == cohort.members) {
      ++cohort.key.count;
      cohort.key.fresh = 0;
    } else if (cohort.stepped != 0) {
      model.cohortsValid = false;
    }
    cohort.stepped = 0;
  }
  countElsewhere();
  inStep = false;
  ++numSteps;
}

void Plan::upload() {
  requireNoStep("stepcPlanUpload");
  engine->requireUpload();
  followGrads();
  prepareStep();
  engine->prepare();
  engine->upload();
}
