//===- PlanParts.cpp - steps in which gradients come by and by ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Fault.h"
#include "core/Plan.h"
#include "core/Status.h"

using namespace stepc;

// A step with transfers is one of two forms. Where the definition permits parts
// a bucket is stepped as it lands. Else all gradients come, the step is one,
// and then the parameters leave.

/// Which tensors others step, for who counts on a device.
template <typename Takes>
void Plan::setFollows(Takes &&takes) noexcept {
  for (const EntryTensor &entry : transfers.getTensors())
    model.tensors[size_t(entry.id)].follows = entry.elsewhere && takes(entry);
}

/// For a step that is uploaded.
void Plan::followGrads() noexcept {
  setFollows(
      [](const EntryTensor &entry) { return entry.hasGrad || entry.landed; });
}

void Plan::stepWithTransfers() {
  renewTransfers();
  bool inParts =
      transfers.sharesSums() || (transfers.permitsParts() &&
                                 transfers.overlaps() && !engine->stepsWhole());
  beginEntries(!inParts);
  if (inParts)
    stepBuckets();
  else
    stepPhases();
}

/// Every gradient that there is has come.
void Plan::beginEntries(bool together) {
  for (const EntryTensor &entry : transfers.getTensors())
    if (entry.hasGrad)
      requireNotLanded(entry);
  transfers.begin(/*isPass=*/false, together);
  written = false;
  readyEntries.clear();
  for (size_t i = 0; i < transfers.getTensors().size(); ++i)
    if (transfers.getTensors()[i].hasGrad)
      transfers.setReady(i);
  transfers.closeAll();
}

void Plan::stepBuckets() {
  checkStep();
  engine->requireParts();
  engine->takeCounts();
  if (!model.cohortsValid)
    model.formCohorts(engine->getScalarRows());
  engine->beginParts();
  // Tensors of this rank alone are stepped while the first buckets cross.
  waitingIds.clear();
  for (size_t id = 0; id < model.tensors.size(); ++id) {
    BoundTensor &tensor = model.tensors[id];
    if (tensor.entry >= 0 || !tensor.hasGrad)
      continue;
    tensor.stepped = true;
    waitingIds.push_back(int64_t(id));
  }
  bring();
  finishParts();
  endParts();
  refuseFailure();
}

void Plan::stepPhases() {
  setFollows([](const EntryTensor &entry) { return entry.ready; });
  prepareStep();
  engine->prepare();
  engine->beginTransfers();
  bring();
  StepOutcome outcome = runWithOthers();
  if (outcome.kind != StepOutcome::Kind::Skipped ||
      STEPC_FAULT("transfer-gathers-a-skipped-step")) {
    written = true;
    give();
  }
  // Else the device counts, or nothing has happened.
  if (outcome.kind == StepOutcome::Kind::Stepped)
    countElsewhere();
  if (outcome.kind == StepOutcome::Kind::Captured)
    transfers.uncount();
  countWhole(outcome);
}

/// Has buckets cross, as far as they are ready. An error ends the step: before
/// anything was written it has changed nothing.
void Plan::bring() {
  bool ofPass = inPass;
  try {
    transfers.bring(*engine, *this, readyEntries.data(), readyEntries.size());
    readyEntries.clear();
    beforeWait();
  } catch (const Error &error) {
    failure.reset();
    inPass ? dropPass() : dropParts();
    if (!written && !engine->isBroken() &&
        error.getStatus() == STEPC_COMMUNICATION_ERROR)
      fail(STEPC_COMMUNICATION_ERROR,
           "%s; nothing was written, parameters and states are as before%s",
           error.what(),
           ofPass ? ", what passes had brought is forgotten" : "");
    engine->poison();
    throw;
  } catch (...) {
    failure.reset();
    inPass ? dropPass() : dropParts();
    engine->poison();
    throw;
  }
}

void Plan::give() {
  try {
    transfers.give(*engine, *this);
  } catch (...) {
    engine->poison();
    throw;
  }
}

/// Where the store fails, other ranks have gone on and wait for parameters.
StepOutcome Plan::runWithOthers() {
  try {
    return runWhole();
  } catch (const Error &error) {
    if (error.getStatus() == STEPC_STORE_ERROR) {
      engine->poison();
      written = true;
      give();
    }
    throw;
  }
}

void Plan::beforeWait() {
  stepListed(waitingIds);
  waitingIds.clear();
}

void Plan::stepBucket(const TransferBucket &bucket) {
  // Where another rank steps all of it this one still receives parameters.
  written = true;
  partIds.clear();
  for (size_t member : bucket.members) {
    const EntryTensor &entry = transfers.getTensors()[member];
    if (!entry.ready || entry.stepped || entry.elsewhere)
      continue;
    model.tensors[size_t(entry.id)].stepped = true;
    partIds.push_back(entry.id);
  }
  stepListed(partIds);
}

/// Refuses a gradient that cannot have come.
void Plan::requireReady(int64_t id) const {
  requireId(id);
  const BoundTensor &tensor = model.tensors[id];
  const char *name = model.names[id].c_str();
  if (inPass && (tensor.entry < 0 || !getEntry(tensor).landing))
    fail(
        STEPC_WRONG_STATE,
        "the gradient of tensor %s is no sum over ranks: a step reads it where "
        "it is",
        name);
  if (tensor.entry < 0 && transfers.permitsParts())
    return requireSteppable(id);
  // Of a sum over ranks it may be others that have an addend.
  bool sums = tensor.entry >= 0 && getEntry(tensor).landing;
  if (!sums && !hasGradOf(tensor))
    fail(STEPC_WRONG_STATE, "tensor %s has no gradient", name);
  if (tensor.entry >= 0 && !inPass && getEntry(tensor).hasGrad)
    requireNotLanded(getEntry(tensor));
  if (tensor.entry < 0 ? tensor.stepped : getEntry(tensor).ready)
    fail(STEPC_WRONG_STATE,
         "the gradient of tensor %s has come since %s already", name,
         inPass ? "stepcPassBegin" : "stepcStepBegin");
  if (tensor.entry >= 0 && getEntry(tensor).absent)
    fail(STEPC_WRONG_STATE,
         "the gradient of tensor %s was said not to come in this step", name);
  if (tensor.entry >= 0 && transfers.getBucket(getEntry(tensor).bucket).done &&
      !inPass)
    fail(STEPC_WRONG_STATE,
         "tensor %s comes behind its bucket, which passes have brought; what "
         "they have not is named first, in one call",
         name);
}

/// What passes have brought is all that a step takes of a bucket.
void Plan::requireNotLanded(const EntryTensor &entry) const {
  if (transfers.getBucket(entry.bucket).landed)
    fail(STEPC_WRONG_STATE,
         "tensor %s has a gradient, and passes have brought gradients of its "
         "bucket; bring it by stepcPassBegin, or stepcPlanForgetGrads",
         entry.name.c_str());
}

/// What is read where the caller has it is stepped at once, where that may be.
void Plan::setReady(int64_t id) noexcept {
  BoundTensor &tensor = model.tensors[id];
  if (tensor.entry < 0) {
    if (transfers.permitsParts())
      waitingIds.push_back(id);
    return;
  }
  EntryTensor &entry = getEntry(tensor);
  transfers.setReady(size_t(tensor.entry));
  if (entry.landing)
    readyEntries.push_back(size_t(tensor.entry));
  else if (transfers.permitsParts() && !entry.elsewhere) {
    entry.stepped = tensor.stepped = true;
    waitingIds.push_back(id);
  }
}

/// Refuses all of them, or marks them, so that one that comes twice is noticed.
void Plan::markReady(const int64_t *ids, int64_t size) {
  auto mark = [&](int64_t id, bool value) {
    BoundTensor &tensor = model.tensors[id];
    (tensor.entry < 0 ? tensor.stepped : getEntry(tensor).ready) = value;
  };
  int64_t marked = 0;
  readyEntries.clear();
  try {
    for (; marked < size; ++marked) {
      requireReady(ids[marked]);
      mark(ids[marked], true);
      const BoundTensor &tensor = model.tensors[ids[marked]];
      if (tensor.entry >= 0)
        readyEntries.push_back(size_t(tensor.entry));
    }
    transfers.reserveSends(readyEntries, getTransferMemory());
  } catch (...) {
    while (marked-- > 0)
      mark(ids[marked], false);
    throw;
  }
}

void Plan::gradReady(const int64_t *ids, int64_t size) {
  if (!inStep && !inPass)
    fail(STEPC_WRONG_STATE,
         "stepcGradReady without stepcStepBegin or stepcPassBegin");
  if (!transfers.any() && !inPass)
    return stepTensors(ids, size);
  if (size < 0 || (size > 0 && !ids))
    fail(STEPC_INVALID_ARGUMENT, "%lld tensors were given, without ids",
         static_cast<long long>(size));
  checkOverlap();
  markReady(ids, size);
  readyEntries.clear();
  for (int64_t i = 0; i < size; ++i)
    setReady(ids[i]);
  bring();
}

/// Ends a step of which tensors were named as their gradients came.
void Plan::stepNamed() {
  // What is refused leaves the step as it is, for another end.
  if (!transfers.permitsParts())
    checkStep();
  if (transfers.tells())
    transfers.reserveRest(getTransferMemory());
  transfers.closeAll();
  // Who takes part is known when all have landed.
  if (transfers.permitsParts() || transfers.tells())
    bring();
  if (transfers.permitsParts()) {
    finishParts();
    endParts();
  } else if (!transfers.isGivenUp()) {
    stepNamedAtOnce();
  } else {
    dropParts();
  }
  wakeEntries();
  refuseFailure();
  refuseGivenUp(transfers.permitsParts() ? lastStep.numTensors : 0);
}

/// Those that were not named sleep in this step.
void Plan::stepNamedAtOnce() {
  inStep = false;
  waitingIds.clear();
  for (size_t id = 0; id < model.tensors.size(); ++id) {
    BoundTensor &tensor = model.tensors[id];
    if (tensor.entry >= 0) {
      const EntryTensor &entry = getEntry(tensor);
      setGradActive(tensor, entry.ready && !tensor.elsewhere &&
                                (entry.landing || entry.hasGrad));
    } else if (tensor.hasGrad && !tensor.stepped) {
      waitingIds.push_back(int64_t(id));
      setGradActive(tensor, false);
    }
    tensor.stepped = false;
  }
  // Nothing is to be stepped before it is waited for.
  partIds.swap(waitingIds);
  waitingIds.clear();
  auto wake = [&] {
    for (int64_t id : partIds)
      setGradActive(model.tensors[size_t(id)], true);
    wakeEntries();
  };
  try {
    stepPhases();
  } catch (...) {
    transfers.abandon(*engine);
    wake();
    throw;
  }
  wake();
}

/// Of what other ranks have stepped the count goes on here, too.
void Plan::countElsewhere() noexcept {
  for (const EntryTensor &entry : transfers.getTensors()) {
    if (!entry.elsewhere || !entry.ready ||
        STEPC_FAULT("transfer-not-counted-elsewhere"))
      continue;
    auto id = size_t(entry.id);
    model.fresh[id] = 0;
    ++model.counts[id];
    model.setMirror(entry.id);
  }
}

/// Ends a step in parts that has failed.
void Plan::dropParts() noexcept {
  // Also those that were named and are in no list yet.
  for (BoundTensor &tensor : model.tensors)
    tensor.stepped = false;
  steppedIds.clear();
  waitingIds.clear();
  for (Cohort &cohort : model.cohorts.getList())
    cohort.stepped = 0;
  inStep = false;
  wakeEntries();
}
