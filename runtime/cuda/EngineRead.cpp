//===- EngineRead.cpp - what a device tells of steps ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the device has found wrong is told to those who ask, and to nobody else:
// a call that takes over has work of its own, which it is to do.
//
//===----------------------------------------------------------------------===//

#include "cuda/Engine.h"

#include "core/Fault.h"
#include "core/Status.h"

#include <algorithm>
#include <cstring>

using namespace stepc;
using namespace stepc::cuda;

/// Refuses to wait in a capture.
void cuda::Engine::requireReadable(const char *what) const {
  if (executor.isCapturing())
    fail(STEPC_WRONG_STATE,
         "%s have to be read from the device, and the stream captures a graph",
         what);
}

static double getDouble(int64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// Tells of graphs that did nothing, and of carried scalars that were not
/// right; once.
void cuda::Engine::tellStale() const {
  if (!captured && !model.package->carries())
    return;
  int64_t state[STEPC_STATE_WORDS];
  executor.readState(state);
  int64_t stale = state[STEPC_STATE_STALE] - staleLaunches;
  staleLaunches = state[STEPC_STATE_STALE];
  if (stale)
    fail(STEPC_WRONG_STATE,
         "%lld launches of graphs did nothing: other tensors have gradients "
         "than when they were captured, or tensors or groups were added; "
         "capture the step again",
         static_cast<long long>(stale));
  stale = state[STEPC_STATE_CARRIED_STALE] - staleCarried;
  staleCarried = state[STEPC_STATE_CARRIED_STALE];
  if (stale)
    failCarried(model, size_t(state[STEPC_STATE_CARRIED_TENSOR]),
                getDouble(state[STEPC_STATE_CARRIED_WAS]),
                getDouble(state[STEPC_STATE_CARRIED_IS]));
}

/// Takes over the counts of what the device has stepped.
void cuda::Engine::takeCounts() {
  if (!countsOnDevice)
    return;
  requireReadable("counts");
  std::vector<int64_t> entries(listedCohorts.size() * STEPC_SCALAR_ENTRY_WORDS);
  executor.takeScalars(entries.data(), entries.size());
  std::vector<const int64_t *> entryOf(model.tensors.size(), nullptr);
  auto take = [&](size_t id, const int64_t *entry) {
    model.counts[id] = entry[STEPC_SCALAR_ENTRY_COUNT] - 1;
    model.fresh[id] = uint64_t(entry[STEPC_SCALAR_ENTRY_FRESH]);
    model.setMirror(int64_t(id));
  };
  for (size_t e = 0; e < listedCohorts.size(); ++e) {
    const int64_t *entry = entries.data() + e * STEPC_SCALAR_ENTRY_WORDS;
    if (listedCohorts[e] < 0)
      take(size_t(-1 - listedCohorts[e]), entry);
    else
      entryOf[size_t(listedCohorts[e])] = entry;
  }
  for (size_t id = 0; id < model.tensors.size(); ++id)
    if (model.cohortOf[id] >= 0 && entryOf[size_t(model.cohortOf[id])])
      take(id, entryOf[size_t(model.cohortOf[id])]);
  countsOnDevice = STEPC_FAULT("device-set-count-lost");
  // Cohorts keep the counts too.
  model.cohortsValid = false;
}

int64_t cuda::Engine::getCount(int64_t id) const {
  if (!countsOnDevice)
    return stepc::Engine::getCount(id);
  int32_t listed = model.tensors[size_t(id)].follows
                       ? -1 - int32_t(id)
                       : model.cohortOf[size_t(id)];
  auto entry = std::find(listedCohorts.begin(), listedCohorts.end(), listed);
  if (entry == listedCohorts.end())
    return stepc::Engine::getCount(id);
  requireReadable("counts");
  tellStale();
  auto word = size_t(entry - listedCohorts.begin()) * STEPC_SCALAR_ENTRY_WORDS +
              STEPC_SCALAR_ENTRY_COUNT;
  return executor.readWord(executor.getScalarList() + word * sizeof(int64_t)) -
         1;
}

/// Takes over results and scalars of all groups.
void cuda::Engine::takeValues() {
  if (!valuesOnDevice)
    return;
  requireReadable("scalars");
  executor.takeValues(step.values.data(), step.values.size());
  auto words = size_t(executor.getLayout().words);
  for (size_t g = 0; g < model.groups.size(); ++g)
    std::memcpy(model.groups[g].results.data(), step.values.data() + g * words,
                model.groups[g].results.size() * sizeof(double));
  valuesOnDevice = false;
}

double cuda::Engine::getResult(int64_t group, size_t index) const {
  if (!valuesOnDevice)
    return stepc::Engine::getResult(group, index);
  requireReadable("scalars and reports");
  tellStale();
  return getDouble(executor.readWord(executor.getValues(size_t(group)) +
                                     index * sizeof(double)));
}

double cuda::Engine::getSlot(const BoundTensor &tensor, size_t slot) const {
  return getDouble(
      executor.readWord(model.getSlots(tensor) + slot * sizeof(double)));
}

void cuda::Engine::completeLastStep(StepcLastStep &last) const {
  bool tells = model.package->carries() && !executor.isCapturing();
  if (!skipOnDevice && !tells)
    return;
  requireReadable("skipped steps");
  tellStale();
  if (!skipOnDevice)
    return;
  int64_t state[STEPC_STATE_WORDS];
  executor.readState(state);
  last.skipped = int32_t(state[STEPC_STATE_SKIPPED] != 0);
  last.skippedRound = int32_t(state[STEPC_STATE_SKIPPED_ROUND]);
}

/// What the device has counted, too. A plan that has failed is not asked.
void cuda::Engine::addInfo(StepcPlanInfo &info, int64_t memory) const {
  info.deviceBytes = executor.getBytes() + memory;
  info.bytesAllocated += placed.getBytes() + executor.getHostBytes();
  info.deviceLaunches = executor.getNumLaunches();
  info.deviceStores = executor.getNumStores();
  if (!executor.maySkip() || broken || executor.isCapturing())
    return;
  int64_t state[STEPC_STATE_WORDS];
  executor.readState(state);
  info.skippedSteps = state[STEPC_STATE_SKIPPED_STEPS];
  info.rounds -= state[STEPC_STATE_LOST];
}

/// Where those of cohorts lie; there are none before a tensor is bound.
uintptr_t cuda::Engine::getScalarRows() const noexcept {
  return model.tensors.empty() ? 0 : uintptr_t(executor.getScalars(0));
}
