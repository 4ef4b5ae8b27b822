//===- direct.cpp - torch's own functions, called by address --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// C++ only because these functions throw: a sparse gradient has no data
// pointer, a tensor made in inference mode no version counter.
//
//===----------------------------------------------------------------------===//

#include "direct.h"

int stepcDirectRead(const StepcDirect *direct, const void *slot,
                    const void *gradSlot, DLTensor *param, DLTensor *grad) {
  if (*static_cast<const void *const *>(gradSlot) == direct->undefined)
    return 0;
  try {
    direct->view(slot, param, false);
    direct->view(gradSlot, grad, false);
    return 1;
  } catch (...) {
    return -1;
  }
}

int stepcDirectBump(const StepcDirect *direct, const void *slot) {
  try {
    direct->bump(slot);
    return 0;
  } catch (...) {
    return -1;
  }
}
