//===- PlanStep.cpp - steps -----------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"
#include "core/Status.h"
#include "cpu/FloatMode.h"

#include <algorithm>

using namespace stepc;

void Plan::checkOverlap() {
  if (!overlapUnchecked)
    return;
  overlapChecker.clear();
  for (size_t id = 0; id < tensors.size(); ++id)
    addViews(int64_t(id), 0, UINTPTR_MAX, /*writtenOnly=*/false);
  const OwnedView *first, *second;
  if (overlapChecker.find(first, second))
    fail(STEPC_OVERLAP, "%s and %s share memory",
         getOperandName(first->tensor, size_t(first->operand)).str().c_str(),
         getOperandName(second->tensor, size_t(second->operand)).str().c_str());
  overlapUnchecked = false;
}

void Plan::formCohorts() noexcept {
  cohorts.clear();
  for (size_t id = 0; id < tensors.size(); ++id) {
    const BoundTensor &tensor = tensors[id];
    cohortOf[id] = cohorts.add({tensor.variant, tensor.group, counts[id],
                                fresh[id] != 0, tensor.hasGrad});
    getRow(tensor)[STEPC_ROW_SCALARS] =
        int64_t(reinterpret_cast<uintptr_t>(cohorts.getScalars(cohortOf[id])));
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
    classes[tensor.rowClass].listRow(tensor.row, tensor.elements);
  }
  numToggled = 0;
  listWork();
  listsValid = true;
}

/// Gathers the chunks that the classes list into the engine's work.
void Plan::listWork() noexcept {
  work.clear();
  workWeight = 0;
  for (size_t c = 0; c < classes.size(); ++c) {
    RowClass &rows = classes[c];
    if (!rows.hasList())
      continue;
    const VariantCode &code = package->getCode(c / 2);
    workWeight = rows.weighList(workWeight);
    work.push_back({c % 2 ? code.stridedKernel : code.kernel, rows.getCall(),
                    rows.getListSize(), rows.getMiddles()});
  }
}

void Plan::prepareStep() {
  checkOverlap();
  if (cohortsValid && listsValid && numToggled == 0)
    return;
  formCohorts();
  listActive();
}

static void requireCountable(int64_t count) {
  if (count > kMaxCount)
    fail(STEPC_WRONG_STATE, "a tensor has count %lld, it cannot be stepped",
         static_cast<long long>(count));
}

void Plan::fillScalars(bool activeOnly) {
  FloatMode mode;
  int32_t index = 0;
  for (const Cohort &cohort : cohorts.getList()) {
    const CohortKey &key = cohort.key;
    if (key.active || !activeOnly) {
      requireCountable(key.count);
      package->getCode(key.variant)
          .scalars(groups[key.group].hypers.data(), nullptr, key.count + 1,
                   key.fresh, cohorts.getScalars(index));
    }
    ++index;
  }
}

void Plan::runListed() {
  if (engine.run(work.data(), int64_t(work.size()), workWeight))
    return;
  poisoned = true;
  fail(STEPC_INTERNAL_ERROR,
       "a kernel of package '%s' failed midway, the plan cannot be used any "
       "more",
       package->getName().c_str());
}

void Plan::step() {
  requireNoStep("stepcStep");
  prepareStep();
  fillScalars(/*activeOnly=*/true);
  runListed();
  finishStep();
}

/// Counts a step of all listed tensors, which are whole cohorts.
void Plan::finishStep() noexcept {
  bool someFresh = false;
  for (Cohort &cohort : cohorts.getList()) {
    if (!cohort.key.active)
      continue;
    someFresh |= cohort.key.fresh;
    cohort.key.fresh = false;
    ++cohort.key.count;
  }
  if (listedIds.size() == tensors.size())
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
  ++numSteps;
}

void Plan::stepBegin() {
  requireNoStep("stepcStepBegin");
  checkOverlap();
  if (!cohortsValid)
    formCohorts();
  // For tensors without a gradient too: they may get one before the end.
  fillScalars(/*activeOnly=*/false);
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
    classes[tensor.rowClass].listRow(tensor.row, tensor.elements);
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
  if (!getVariant(tensor).subsets)
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
  steppedIds.clear();
  for (Cohort &cohort : cohorts.getList()) {
    // A cohort of which only a part was stepped falls apart.
    if (cohort.stepped == cohort.members) {
      ++cohort.key.count;
      cohort.key.fresh = false;
    } else if (cohort.stepped != 0) {
      cohortsValid = false;
    }
    cohort.stepped = 0;
  }
  inStep = false;
  ++numSteps;
}
