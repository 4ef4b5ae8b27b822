//===- EngineLists.cpp - what a step on a device works on -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The lists of DeviceStep, made of what the plan has on the host.
//
//===----------------------------------------------------------------------===//

#include "cuda/Engine.h"

#include "core/Fault.h"

#include <cstring>

using namespace stepc;
using namespace stepc::cuda;

/// In which segments a variant changes what a caller has.
uint64_t cuda::Engine::getWrites(size_t variant) const {
  uint64_t writes = 0;
  for (int64_t s = 0; s < model.getManifest().getNumSegments() && s < 64; ++s)
    writes |= uint64_t(model.getSegment(variant, s).changes != 0) << s;
  return writes;
}

/// The classes that have rows.
void cuda::Engine::listRows() {
  step.rows.clear();
  placed.beginLists();
  if (step.chunksChanged)
    step.codes.clear();
  for (size_t c = 0; c < model.classes.size(); ++c) {
    if (!model.classes[c].hasList())
      continue;
    ListedRows rows = {};
    static_cast<RowList &>(rows) = model.classes[c].getList();
    rows.rowClass = c;
    rows.writes = getWrites(c / 2);
    if (placed.any() && rows.rowPlaces)
      listPlaced(rows);
    else if (model.classes[c].hasCodes())
      listCodes(rows);
    step.rows.push_back(rows);
  }
}

/// Has the device work on what of a class lies in a store window by window,
/// and on what is codes in the same windows.
void cuda::Engine::listPlaced(ListedRows &rows) {
  const RowList whole = rows;
  CodedWindows *own =
      model.classes[rows.rowClass].hasCodes() ? &coded[rows.rowClass] : nullptr;
  static_cast<RowList &>(rows) = placed.cut(rows.rowClass, whole, own);
  rows.placed = true;
  if (own)
    findCodes(rows, whole);
}

/// Cuts the list of a class into windows, where it is another one than before.
void cuda::Engine::listCodes(ListedRows &rows) {
  const RowList whole = rows;
  CodedWindows &own = coded[rows.rowClass];
  if (step.chunksChanged)
    own.cut(whole, model.getManifest().variants[rows.rowClass / 2].space ==
                       Space::Elements);
  own.getRowWindows().copyRows(whole);
  static_cast<RowList &>(rows) = own.getList(whole);
  findCodes(rows, whole);
}

/// Has entries find what is f32, of windows of the whole list of a class.
void cuda::Engine::findCodes(ListedRows &rows, const RowList &whole) {
  CodedWindows &own = coded[rows.rowClass];
  size_t variant = rows.rowClass / 2;
  uintptr_t scratch = executor.getCodesScratch();
  if (step.chunksChanged) {
    own.clearPasses();
    for (int64_t s = 0; s < model.getManifest().getNumSegments(); ++s)
      own.addSegment(whole, model.getSegment(variant, s), scratch, step.codes);
  }
  own.place(whole, model.classes[rows.rowClass].getOperandsWord(), scratch);
  rows.coded = &own;
}

/// The bits of the hyper-parameters, and the options, a group after the other.
void cuda::Engine::listGroups() {
  step.groups.clear();
  for (const Group &group : model.groups) {
    for (double value : group.hypers)
      step.groups.push_back(getBits(value));
    step.groups.insert(step.groups.end(), group.options.begin(),
                       group.options.end());
  }
}

/// What rounds change, as the host knows it: of a new group what it begins
/// with.
void cuda::Engine::listValues() {
  if (!executor.hasRounds())
    return;
  const ValueLayout &layout = executor.getLayout();
  for (size_t g = 0; g < model.groups.size(); ++g) {
    const Group &group = model.groups[g];
    size_t begin = g * size_t(layout.words);
    if (step.values.size() == begin) {
      step.values.resize(begin + size_t(layout.words));
      for (size_t s = 0; s < group.folds.size(); ++s)
        step.values[begin + size_t(layout.statistics) + s] =
            getBits(group.folds[s].getIdentity());
    }
    for (size_t r = 0; r < group.results.size(); ++r)
      step.values[begin + r] = getBits(group.results[r]);
  }
}

/// What the tensors contribute to statistics, and which groups take part.
void cuda::Engine::listRounds() {
  if (!executor.hasRounds() || !step.chunksChanged || model.groups.empty())
    return;
  RoundInputs &in = step.rounds;
  size_t numStatistics = model.getManifest().statistics.size();
  in.groupWords =
      int64_t(model.groups[0].hypers.size() + model.groups[0].options.size());
  in.active.clear();
  for (const Group &group : model.groups)
    in.active.push_back(group.activeHere);
  in.groupOf.clear();
  in.contributions.clear();
  for (const BoundTensor &tensor : model.tensors)
    in.groupOf.push_back(tensor.group);
  for (size_t s = 0; s < numStatistics; ++s)
    for (const BoundTensor &tensor : model.tensors)
      in.contributions.push_back(int64_t(model.getContribution(tensor, s)));
  listIdleBuffers();
}

/// Buffers that cross ranks and that no kernel of the step writes.
void cuda::Engine::listIdleBuffers() {
  std::vector<IdleBuffer> &idle = step.rounds.idle;
  idle.clear();
  if (!model.exchange.isWide())
    return;
  auto numRounds = int64_t(model.getManifest().rounds.size());
  for (int64_t round = 0; round < numRounds; ++round)
    model.exchange.forEachIdle(
        round, [&](int64_t id) { return model.tensors[size_t(id)].listed; },
        [&](uintptr_t address, int64_t count, int64_t word) {
          idle.push_back({round, int64_t(address), count, word});
        });
}

/// The arguments of the scalar functions, variant by variant.
void cuda::Engine::listScalars(bool activeOnly) {
  step.scalars.clear();
  step.ranges.clear();
  listedCohorts.clear();
  const std::vector<Cohort> &list = model.cohorts.getList();
  for (size_t v = 0; v < model.getManifest().variants.size(); ++v) {
    auto begin = int64_t(listedCohorts.size());
    for (size_t c = 0; c < list.size(); ++c) {
      const CohortKey &key = list[c].key;
      if (size_t(key.variant) != v || (activeOnly && !key.active))
        continue;
      requireSteppable(key);
      const Group &group = model.groups[key.group];
      auto place =
          STEPC_FAULT("device-hypers-of-another-group") ? 0 : size_t(key.group);
      size_t bytes =
          (group.hypers.size() + group.options.size()) * sizeof(int64_t);
      step.scalars.insert(
          step.scalars.end(),
          {int64_t(executor.getGroups() + place * bytes),
           int64_t(executor.getValues(size_t(key.group))), key.count + 1,
           int64_t(key.fresh),
           int64_t(executor.getScalars(
               STEPC_FAULT("device-scalars-of-another-cohort") ? 0
                                                               : int32_t(c)))});
      listedCohorts.push_back(int32_t(c));
    }
    auto end = int64_t(listedCohorts.size());
    if (begin != end)
      step.ranges.push_back({v, begin, end});
  }
  listFollowed(activeOnly);
}

/// Entries that are counted, and no more: of tensors that other ranks step. In
/// parts the host counts.
void cuda::Engine::listFollowed(bool activeOnly) {
  for (size_t id = 0; activeOnly && id < model.tensors.size(); ++id) {
    if (!model.tensors[id].follows || STEPC_FAULT("device-others-uncounted"))
      continue;
    step.scalars.insert(step.scalars.end(), {0, 0, model.counts[id] + 1,
                                             int64_t(model.fresh[id]), 0});
    listedCohorts.push_back(-1 - int32_t(id));
  }
}

void cuda::Engine::list(bool activeOnly) {
  listRows();
  listGroups();
  listValues();
  listScalars(activeOnly);
  listRounds();
  listCarried();
}

/// What the device looks at: all carried scalars, where they are computed, and
/// whether the step takes their tensors. What is to be forgotten may be of
/// tensors that were bound since the last list.
void cuda::Engine::listCarried() {
  if (!model.package->carries() || !(step.chunksChanged || step.forgets))
    return;
  step.carried.clear();
  for (size_t id = 0; id < model.tensors.size(); ++id) {
    const BoundTensor &tensor = model.tensors[id];
    auto slots = int64_t(model.getSlots(tensor));
    for (const Carried &own : model.getVariant(tensor).carried)
      step.carried.insert(step.carried.end(),
                          {slots + int64_t(own.slot * sizeof(double)),
                           slots + int64_t(own.recomputed * sizeof(double)),
                           int64_t(tensor.listed), int64_t(id)});
  }
}
