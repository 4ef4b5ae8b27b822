//===- PlanDeviceLists.cpp - what a step on a device works on -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The lists of cuda::DeviceStep, made of what the plan has on the host.
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"

#include "core/Fault.h"
#include "core/Status.h"

#include <cstring>

using namespace stepc;

static int64_t getBits(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
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

/// The bits of the hyper-parameters, and the options, a group after the other.
void Plan::listDeviceGroups() {
  deviceStep.groups.clear();
  for (const Group &group : groups) {
    for (double value : group.hypers)
      deviceStep.groups.push_back(getBits(value));
    deviceStep.groups.insert(deviceStep.groups.end(), group.options.begin(),
                             group.options.end());
  }
}

/// What rounds change, as the host knows it: of a new group what it begins
/// with.
void Plan::listDeviceValues() {
  if (!device->hasRounds())
    return;
  const cuda::ValueLayout &layout = device->getLayout();
  for (size_t g = 0; g < groups.size(); ++g) {
    const Group &group = groups[g];
    size_t begin = g * size_t(layout.words);
    if (deviceStep.values.size() == begin) {
      deviceStep.values.resize(begin + size_t(layout.words));
      for (size_t s = 0; s < group.folds.size(); ++s)
        deviceStep.values[begin + size_t(layout.statistics) + s] =
            getBits(group.folds[s].getIdentity());
    }
    for (size_t r = 0; r < group.results.size(); ++r)
      deviceStep.values[begin + r] = getBits(group.results[r]);
  }
}

/// What the tensors contribute to statistics, and which groups take part.
void Plan::listDeviceRounds() {
  if (!device->hasRounds() || !deviceStep.chunksChanged || groups.empty())
    return;
  cuda::RoundInputs &in = deviceStep.rounds;
  size_t numStatistics = package->getManifest().statistics.size();
  in.groupWords = int64_t(groups[0].hypers.size() + groups[0].options.size());
  in.active.clear();
  for (const Group &group : groups)
    in.active.push_back(group.activeHere);
  in.groupOf.clear();
  in.contributions.clear();
  for (const BoundTensor &tensor : tensors)
    in.groupOf.push_back(tensor.group);
  for (size_t s = 0; s < numStatistics; ++s)
    for (const BoundTensor &tensor : tensors)
      in.contributions.push_back(
          int64_t(reinterpret_cast<uintptr_t>(getContribution(
              tensor,
              contributionSlots[size_t(tensor.variant) * numStatistics + s]))));
  listIdleBuffers();
}

/// Buffers that cross ranks and that no kernel of the step writes.
void Plan::listIdleBuffers() {
  std::vector<cuda::IdleBuffer> &idle = deviceStep.rounds.idle;
  idle.clear();
  if (!exchange.isWide())
    return;
  auto numRounds = int64_t(package->getManifest().rounds.size());
  for (int64_t round = 0; round < numRounds; ++round)
    exchange.forEachIdle(
        round, [&](int64_t id) { return tensors[size_t(id)].listed; },
        [&](uintptr_t address, int64_t count, int64_t word) {
          idle.push_back({round, int64_t(address), count, word});
        });
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
      auto place =
          STEPC_FAULT("device-hypers-of-another-group") ? 0 : size_t(key.group);
      size_t bytes =
          (group.hypers.size() + group.options.size()) * sizeof(int64_t);
      deviceStep.scalars.insert(
          deviceStep.scalars.end(),
          {int64_t(device->getGroups() + place * bytes),
           int64_t(device->getValues(size_t(key.group))), key.count + 1,
           int64_t(key.fresh),
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
  listDeviceValues();
  listDeviceScalars(activeOnly);
  listDeviceRounds();
  listDeviceCarried();
}
