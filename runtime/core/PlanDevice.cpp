//===- PlanDevice.cpp - plans whose tensors are on a device ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cohorts, rows and chunks are those of the processor, with addresses of the
// device. A step lists what the device works on, and the engine stores there
// what has changed.
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"

#include "core/Fault.h"
#include "core/Reserve.h"
#include "core/Status.h"

#include <algorithm>
#include <cstring>

using namespace stepc;

void Plan::setCuda(const StepcCudaConfig &config) {
  requireNoStep("stepcPlanSetCuda");
  requireStructSize(&config, sizeof(config), "StepcCudaConfig");
  if (config.reserved0 != 0)
    fail(STEPC_INVALID_ARGUMENT, "a reserved field of the config is %d, not 0",
         int(config.reserved0));
  if (device)
    fail(STEPC_WRONG_STATE, "the plan runs on CUDA device %d already",
         int(device->getOrdinal()));
  if (!tensors.empty())
    fail(STEPC_WRONG_STATE, "stepcPlanSetCuda after %zu tensors were bound",
         tensors.size());
  auto engine = std::make_unique<cuda::Engine>(package, config);
  if (!groups.empty())
    reserveDeviceGroups(*engine, groups.size(), groups[0]);
  deviceStep.rows.reserve(classes.size());
  deviceStep.ranges.reserve(package->getManifest().variants.size());
  for (RowClass &rows : classes)
    rows.setTogether();
  device = std::move(engine);
  place = {kDLCUDA, config.device};
}

void Plan::setStream(void *stream) {
  if (!device)
    fail(STEPC_WRONG_STATE, "stepcPlanSetStream, but the plan runs on the cpu");
  device->setStream(stream);
}

/// Runs what enqueues; what is left half done poisons the plan.
template <typename Work>
void Plan::guardDevice(Work &&work) {
  try {
    work();
  } catch (...) {
    poisoned = device->isBroken();
    throw;
  }
}

bool Plan::isCapturing() {
  bool capturing = false;
  guardDevice([&] { capturing = device->isCapturing(); });
  return capturing;
}

void Plan::requireNoCapture(const char *call) {
  if (isCapturing())
    fail(STEPC_WRONG_STATE, "%s while the stream captures a graph", call);
}

/// Takes what so many groups like this one need.
void Plan::reserveDeviceGroups(cuda::Engine &engine, size_t numGroups,
                               const Group &group) {
  size_t words = numGroups * (group.hypers.size() + group.results.size());
  engine.reserveGroups(words);
  reserveAtLeast(deviceStep.groups, words);
}

/// Takes what steps of so many tensors need.
void Plan::reserveDevice(size_t numTensors) {
  device->reserveCohorts(numTensors, cohorts.getSlots());
  for (size_t c = 0; c < classes.size(); ++c)
    reserveDeviceRows(c);
  reserveAtLeast(deviceStep.scalars, numTensors * STEPC_SCALAR_ENTRY_WORDS);
  reserveAtLeast(deviceCohorts, numTensors);
}

void Plan::reserveDeviceRows(size_t rowClass) {
  const RowClass &rows = classes[rowClass];
  device->reserveRows(rowClass, rows.getTableCapacity(),
                      rows.getChunkCapacity(), rows.getFinishCapacity());
}

/// The classes that have rows.
void Plan::listDeviceRows() {
  deviceStep.rows.clear();
  for (size_t c = 0; c < classes.size(); ++c) {
    if (!classes[c].hasList())
      continue;
    WorkPart part = {};
    classes[c].describe(part);
    const std::vector<StepcChunk> &finishes = classes[c].getFinishes();
    deviceStep.rows.push_back({c, part.call.table, classes[c].getTableWords(),
                               part.call.rowWords, part.call.chunks,
                               part.numChunks, finishes.data(),
                               int64_t(finishes.size())});
  }
}

/// The bits of all hyper-parameters and results, a group after the other.
void Plan::listDeviceGroups() {
  deviceStep.groups.clear();
  for (const Group &group : groups)
    for (const std::vector<double> *values : {&group.hypers, &group.results})
      for (double value : *values) {
        int64_t bits;
        std::memcpy(&bits, &value, sizeof(bits));
        deviceStep.groups.push_back(bits);
      }
}

/// The arguments of the scalar functions, variant by variant.
void Plan::listDeviceScalars(bool activeOnly) {
  deviceStep.scalars.clear();
  deviceStep.ranges.clear();
  deviceCohorts.clear();
  const std::vector<Cohort> &list = cohorts.getList();
  for (size_t v = 0; v < package->getManifest().variants.size(); ++v) {
    auto begin = int64_t(deviceCohorts.size());
    for (size_t c = 0; c < list.size(); ++c) {
      const CohortKey &key = list[c].key;
      if (size_t(key.variant) != v || (activeOnly && !key.active))
        continue;
      if (key.count > kMaxCount)
        fail(STEPC_WRONG_STATE, "a tensor has count %lld, it cannot be stepped",
             static_cast<long long>(key.count));
      const Group &group = groups[key.group];
      bool first = STEPC_FAULT("device-hypers-of-another-group");
      auto address = int64_t(device->getGroups() +
                             size_t(first ? 0 : key.group) *
                                 (group.hypers.size() + group.results.size()) *
                                 sizeof(double));
      deviceStep.scalars.insert(
          deviceStep.scalars.end(),
          {address, address + int64_t(group.hypers.size() * sizeof(double)),
           key.count + 1, int64_t(key.fresh),
           int64_t(getScalars(STEPC_FAULT("device-scalars-of-another-cohort")
                                  ? 0
                                  : int32_t(c)))});
      deviceCohorts.push_back(int32_t(c));
    }
    auto end = int64_t(deviceCohorts.size());
    if (begin != end)
      deviceStep.ranges.push_back({v, begin, end});
  }
}

void Plan::prepareDevice(bool activeOnly) {
  listDeviceRows();
  listDeviceGroups();
  listDeviceScalars(activeOnly);
}

std::string Plan::describeRows(size_t rowClass) const {
  int64_t count = 0;
  const std::string *first = nullptr;
  for (size_t id = 0; id < tensors.size(); ++id) {
    if (size_t(tensors[id].rowClass) != rowClass || !tensors[id].hasGrad)
      continue;
    ++count;
    if (!first)
      first = &names[id];
  }
  if (!first)
    return "";
  return " for " + std::to_string(count) + " tensors, the first " + *first;
}

/// A step that is captured must not store counts and hyper-parameters, which
/// each launch of the graph would store again.
void Plan::stepOnDevice() {
  bool capturing = isCapturing();
  if (capturing && !(cohortsValid && listsValid && numToggled == 0))
    fail(STEPC_WRONG_STATE,
         "the stream captures a graph, and other tensors have gradients than "
         "in the last step; call stepcPlanUpload before");
  prepareStep();
  prepareDevice(/*activeOnly=*/true);
  if (capturing && !device->hasScalars(deviceStep) &&
      !STEPC_FAULT("device-capture-stores-counts"))
    fail(STEPC_WRONG_STATE,
         "the stream captures a graph, and counts or hyper-parameters have "
         "changed since the last step; call stepcPlanUpload before");
  StepcLastStep taken = {};
  taken.skippedRound = -1;
  taken.numTensors = int64_t(listedIds.size());
  if (!listedIds.empty())
    guardDevice([&] {
      device->run(deviceStep,
                  [this](size_t rows) { return describeRows(rows); });
      deviceStep.chunksChanged = false;
    });
  lastStep = taken;
  if (capturing) {
    countsOnDevice = !STEPC_FAULT("device-counts-of-the-host");
    return;
  }
  device->countKnown(deviceStep.scalars.size());
  countStep();
  ++numSteps;
}

/// What stepcStepBegin does: counts change at the end, by the host.
void Plan::fillOnDevice() {
  requireNoCapture("stepcStepBegin");
  if (countsOnDevice)
    fail(STEPC_WRONG_STATE,
         "stepcStepBegin, but steps of the plan were captured in a graph");
  prepareDevice(/*activeOnly=*/false);
  deviceStep.rows.clear();
  guardDevice([&] { device->runScalars(deviceStep); });
}

/// The kernels over what the classes list.
void Plan::runOnDevice() {
  listDeviceRows();
  guardDevice([&] {
    device->runKernels(deviceStep,
                       [this](size_t rows) { return describeRows(rows); });
    deviceStep.chunksChanged = false;
  });
}

void Plan::upload() {
  requireNoStep("stepcPlanUpload");
  if (!device)
    fail(STEPC_WRONG_STATE, "stepcPlanUpload, but the plan runs on the cpu");
  requireNoCapture("stepcPlanUpload");
  prepareStep();
  prepareDevice(/*activeOnly=*/true);
  guardDevice([&] {
    device->upload(deviceStep);
    deviceStep.chunksChanged = false;
  });
}

/// Takes over the counts of the tensors that graphs have stepped.
void Plan::readDeviceCounts() {
  std::vector<int64_t> entries(deviceCohorts.size() * STEPC_SCALAR_ENTRY_WORDS);
  device->readScalars(entries.data(), entries.size());
  std::vector<const int64_t *> entryOf(tensors.size(), nullptr);
  for (size_t e = 0; e < deviceCohorts.size(); ++e)
    entryOf[size_t(deviceCohorts[e])] =
        entries.data() + e * STEPC_SCALAR_ENTRY_WORDS;
  for (size_t id = 0; id < tensors.size(); ++id) {
    if (cohortOf[id] < 0 || !entryOf[size_t(cohortOf[id])])
      continue;
    const int64_t *entry = entryOf[size_t(cohortOf[id])];
    counts[id] = entry[STEPC_SCALAR_ENTRY_COUNT] - 1;
    fresh[id] = uint8_t(entry[STEPC_SCALAR_ENTRY_FRESH]);
    if (mirrors[id])
      *mirrors[id] = float(counts[id]);
  }
  // Cohorts keep the counts too.
  cohortsValid = false;
}

int64_t Plan::readDeviceCount(int64_t id) const {
  auto entry = std::find(deviceCohorts.begin(), deviceCohorts.end(),
                         cohortOf[size_t(id)]);
  if (entry == deviceCohorts.end())
    return counts[size_t(id)];
  std::vector<int64_t> entries(deviceCohorts.size() * STEPC_SCALAR_ENTRY_WORDS);
  device->readScalars(entries.data(), entries.size());
  auto index = size_t(entry - deviceCohorts.begin());
  return entries[index * STEPC_SCALAR_ENTRY_WORDS + STEPC_SCALAR_ENTRY_COUNT] -
         1;
}
