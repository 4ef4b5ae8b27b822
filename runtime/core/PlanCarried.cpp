//===- PlanCarried.cpp - scalars kept from step to step -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A carried scalar lies in a slot of its tensor, where the last phases of a
// step put it and the first ones of the next step read it; 0 says that it is
// not known, and it is computed. Slots are 0 when a tensor is bound.
//
// One carried scalar a step is made unknown before it, so computed anew, and
// compared afterwards: whoever breaks the promise of exclusive writes hears of
// it, at the cost of reading one tensor. On a device kernels do so
// (kernel_abi.h), and a call that asks for what the device has computed tells.
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"
#include "core/Status.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace stepc;

double *Plan::getSlots(const BoundTensor &tensor) {
  return reinterpret_cast<double *>(getRow(tensor)[STEPC_TILE_SLOTS]);
}

/// On a device the next step or upload does it, for all tensors.
void Plan::forgetCarried(const BoundTensor &tensor) {
  if (device) {
    deviceStep.forgets = package->carries();
    return;
  }
  for (const Carried &carried : getVariant(tensor).carried)
    getSlots(tensor)[carried.slot] = 0.0;
}

void Plan::parametersWritten() {
  requireNoStep("stepcPlanParametersWritten");
  for (const BoundTensor &tensor : tensors)
    forgetCarried(tensor);
}

/// Makes the next known scalar of a listed tensor unknown.
void Plan::beginCarriedCheck() noexcept {
  checked = {};
  for (size_t n = 0; package->carries() && n < tensors.size(); ++n) {
    carriedTurn = carriedTurn + 1 < tensors.size() ? carriedTurn + 1 : 0;
    const BoundTensor &tensor = tensors[carriedTurn];
    if (!tensor.listed)
      continue;
    for (const Carried &carried : getVariant(tensor).carried) {
      double *slots = getSlots(tensor);
      double known = slots[carried.slot];
      if (known == 0.0)
        continue;
      slots[carried.slot] = 0.0;
      checked = {slots + carried.slot, slots + carried.recomputed, known};
      return;
    }
  }
}

/// After a step; throws where the scalar was not what the step before had left.
void Plan::endCarriedCheck() {
  if (!checked.slot)
    return;
  // What a skipped step has computed need not be there.
  if (lastStep.skipped) {
    *checked.slot = checked.known;
    return;
  }
  double now = *checked.recomputed;
  if (now == checked.known || (std::isnan(now) && std::isnan(checked.known)))
    return;
  for (const BoundTensor &tensor : tensors)
    forgetCarried(tensor);
  failCarried(carriedTurn, checked.known, now);
}

void Plan::failCarried(size_t tensor, double known, double now) const {
  fail(STEPC_STALE_STATISTICS,
       "tensor %s: its parameter was written by others since the step before "
       "(a statistic of it was %s and is %s), which --exclusive-writes "
       "promises not to happen unless stepcPlanParametersWritten tells of it; "
       "this step has used old statistics of other tensors",
       names[tensor].c_str(), describeNumber(known).c_str(),
       describeNumber(now).c_str());
}

size_t Plan::countCarriedWords(size_t numTensors) const {
  size_t most = 0;
  for (const Variant &variant : package->getManifest().variants)
    most = std::max(most, variant.carried.size());
  return numTensors * most * STEPC_CARRIED_ENTRY_WORDS;
}

/// What the device looks at: all carried scalars, where they are computed, and
/// whether the step takes their tensors. What is to be forgotten may be of
/// tensors that were bound since the last list.
void Plan::listDeviceCarried() {
  if (!package->carries() || !(deviceStep.chunksChanged || deviceStep.forgets))
    return;
  deviceStep.carried.clear();
  for (size_t id = 0; id < tensors.size(); ++id) {
    int64_t slots = getRow(tensors[id])[STEPC_TILE_SLOTS];
    for (const Carried &carried : getVariant(tensors[id]).carried)
      deviceStep.carried.insert(
          deviceStep.carried.end(),
          {slots + int64_t(carried.slot * sizeof(double)),
           slots + int64_t(carried.recomputed * sizeof(double)),
           int64_t(tensors[id].listed), int64_t(id)});
  }
}

/// Tells once of what the device has found.
void Plan::checkDeviceCarried(const int64_t *state) const {
  int64_t stale = state[STEPC_STATE_CARRIED_STALE] - staleCarried;
  staleCarried = state[STEPC_STATE_CARRIED_STALE];
  if (!stale)
    return;
  double known, now;
  std::memcpy(&known, state + STEPC_STATE_CARRIED_WAS, sizeof(known));
  std::memcpy(&now, state + STEPC_STATE_CARRIED_IS, sizeof(now));
  failCarried(size_t(state[STEPC_STATE_CARRIED_TENSOR]), known, now);
}
