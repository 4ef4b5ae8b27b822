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
// it, at the cost of reading one tensor.
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"
#include "core/Status.h"

#include <cmath>

using namespace stepc;

double *Plan::getSlots(const BoundTensor &tensor) {
  return reinterpret_cast<double *>(getRow(tensor)[STEPC_TILE_SLOTS]);
}

void Plan::forgetCarried(const BoundTensor &tensor) {
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
  fail(STEPC_STALE_STATISTICS,
       "tensor %s: its parameter was written by others since the step before "
       "(a statistic of it was %.17g and is %.17g), which --exclusive-writes "
       "promises not to happen unless stepcPlanParametersWritten tells of it; "
       "this step has used old statistics of other tensors",
       names[carriedTurn].c_str(), checked.known, now);
}
