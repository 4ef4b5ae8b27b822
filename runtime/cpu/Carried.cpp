//===- Carried.cpp - scalars kept from step to step ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/Carried.h"

#include "core/Engine.h"

#include <cmath>

using namespace stepc;
using namespace stepc::cpu;

void CarriedCheck::forget(size_t tensor) noexcept {
  for (const Carried &carried : model.getVariant(model.tensors[tensor]).carried)
    getSlots(tensor)[carried.slot] = 0.0;
}

void CarriedCheck::begin() noexcept {
  slot = nullptr;
  size_t numTensors = model.tensors.size();
  for (size_t n = 0; model.package->carries() && n < numTensors; ++n) {
    turn = turn + 1 < numTensors ? turn + 1 : 0;
    const BoundTensor &tensor = model.tensors[turn];
    if (!tensor.listed)
      continue;
    for (const Carried &carried : model.getVariant(tensor).carried) {
      double *slots = getSlots(turn);
      known = slots[carried.slot];
      if (known == 0.0)
        continue;
      slot = slots + carried.slot;
      recomputed = slots + carried.recomputed;
      *slot = 0.0;
      return;
    }
  }
}

void CarriedCheck::end(bool skipped) {
  if (!slot)
    return;
  // What a skipped step has computed need not be there.
  if (skipped) {
    *slot = known;
    return;
  }
  double now = *recomputed;
  if (now == known || (std::isnan(now) && std::isnan(known)))
    return;
  for (size_t tensor = 0; tensor < model.tensors.size(); ++tensor)
    forget(tensor);
  failCarried(model, turn, known, now);
}
