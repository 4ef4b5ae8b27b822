//===- PlanDeviceRead.cpp - what a device tells of steps ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Counts of steps that were captured or that may be skipped, and what rounds
// compute, are the device's: steps do not wait for them. Whoever asks waits for
// the stream; whoever changes them takes them over first, and the next step or
// upload tells the device what differs.
//
// What the device has found wrong is told to those who ask, and to nobody else:
// a call that takes over has work of its own, which it is to do.
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"

#include "core/Fault.h"
#include "core/Status.h"

#include <algorithm>
#include <cstring>

using namespace stepc;

/// Refuses to wait in a capture.
void Plan::requireReadable(const char *what) const {
  if (device->isCapturing())
    fail(STEPC_WRONG_STATE,
         "%s have to be read from the device, and the stream captures a graph",
         what);
}

/// Tells of graphs that did nothing, and of carried scalars that were not
/// right; once.
void Plan::tellStale() const {
  if (!captured && !package->carries())
    return;
  int64_t state[STEPC_STATE_WORDS];
  device->readState(state);
  int64_t stale = state[STEPC_STATE_STALE] - staleLaunches;
  staleLaunches = state[STEPC_STATE_STALE];
  if (stale)
    fail(STEPC_WRONG_STATE,
         "%lld launches of graphs did nothing: other tensors have gradients "
         "than when they were captured, or tensors or groups were added; "
         "capture the step again",
         static_cast<long long>(stale));
  checkDeviceCarried(state);
}

/// Takes over the counts of what the device has stepped.
void Plan::takeCounts() {
  if (!countsOnDevice)
    return;
  requireReadable("counts");
  std::vector<int64_t> entries(deviceCohorts.size() * STEPC_SCALAR_ENTRY_WORDS);
  device->takeScalars(entries.data(), entries.size());
  std::vector<const int64_t *> entryOf(tensors.size(), nullptr);
  for (size_t e = 0; e < deviceCohorts.size(); ++e)
    entryOf[size_t(deviceCohorts[e])] =
        entries.data() + e * STEPC_SCALAR_ENTRY_WORDS;
  for (size_t id = 0; id < tensors.size(); ++id) {
    if (cohortOf[id] < 0 || !entryOf[size_t(cohortOf[id])])
      continue;
    const int64_t *entry = entryOf[size_t(cohortOf[id])];
    counts[id] = entry[STEPC_SCALAR_ENTRY_COUNT] - 1;
    fresh[id] = uint64_t(entry[STEPC_SCALAR_ENTRY_FRESH]);
    if (mirrors[id])
      *mirrors[id] = float(counts[id]);
  }
  countsOnDevice = STEPC_FAULT("device-set-count-lost");
  // Cohorts keep the counts too.
  cohortsValid = false;
}

int64_t Plan::readDeviceCount(int64_t id) const {
  auto entry = std::find(deviceCohorts.begin(), deviceCohorts.end(),
                         cohortOf[size_t(id)]);
  if (entry == deviceCohorts.end())
    return counts[size_t(id)];
  requireReadable("counts");
  tellStale();
  auto word = size_t(entry - deviceCohorts.begin()) * STEPC_SCALAR_ENTRY_WORDS +
              STEPC_SCALAR_ENTRY_COUNT;
  return device->readWord(device->getScalarList() + word * sizeof(int64_t)) - 1;
}

/// Takes over results and scalars of all groups.
void Plan::takeValues() {
  if (!valuesOnDevice)
    return;
  requireReadable("scalars");
  device->takeValues(deviceStep.values.data(), deviceStep.values.size());
  auto words = size_t(device->getLayout().words);
  for (size_t g = 0; g < groups.size(); ++g)
    std::memcpy(groups[g].results.data(), deviceStep.values.data() + g * words,
                groups[g].results.size() * sizeof(double));
  valuesOnDevice = false;
}

/// A result or scalar of a group, by its index among them.
double Plan::readDeviceValue(int64_t group, size_t index) const {
  requireReadable("scalars and reports");
  tellStale();
  int64_t bits = device->readWord(device->getValues(size_t(group)) +
                                  index * sizeof(double));
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// A slot of a tensor, wherever it is.
double Plan::readSlot(const BoundTensor &tensor, size_t slot) const {
  auto address =
      uintptr_t(getRow(tensor)[STEPC_TILE_SLOTS]) + slot * sizeof(double);
  if (!device)
    return *reinterpret_cast<const double *>(address);
  int64_t bits = device->readWord(address);
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

StepcLastStep Plan::getLastStep() const {
  StepcLastStep last = lastStep;
  bool tells = device && package->carries() && !device->isCapturing();
  if (!skipOnDevice && !tells)
    return last;
  requireReadable("skipped steps");
  tellStale();
  if (!skipOnDevice)
    return last;
  int64_t state[STEPC_STATE_WORDS];
  device->readState(state);
  last.skipped = int32_t(state[STEPC_STATE_SKIPPED] != 0);
  last.skippedRound = int32_t(state[STEPC_STATE_SKIPPED_ROUND]);
  return last;
}

/// Sets what the device has counted. A plan that has failed is not asked.
void Plan::readDeviceInfo(StepcPlanInfo &info) const {
  info.deviceBytes = device->getBytes() + int64_t(exchange.getPackBytes());
  for (const cuda::DeviceBlock &block : deviceStates)
    info.deviceBytes += int64_t(block.getSize());
  info.deviceLaunches = device->getNumLaunches();
  info.deviceStores = device->getNumStores();
  if (!device->maySkip() || isPoisoned() || device->isCapturing())
    return;
  int64_t state[STEPC_STATE_WORDS];
  device->readState(state);
  info.skippedSteps = state[STEPC_STATE_SKIPPED_STEPS];
  info.rounds -= state[STEPC_STATE_LOST];
}
