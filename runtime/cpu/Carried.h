//===- Carried.h - scalars kept from step to step -----------------------===//
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

#ifndef STEPC_CPU_CARRIED_H
#define STEPC_CPU_CARRIED_H

#include "core/Model.h"

namespace stepc::cpu {

class CarriedCheck {
public:
  explicit CarriedCheck(const Model &model) : model(model) {}

  /// Makes all carried scalars of a tensor unknown.
  void forget(size_t tensor) noexcept;
  /// Makes the next known scalar of a listed tensor unknown.
  void begin() noexcept;
  /// After a step; throws where the scalar was not what the step before had
  /// left.
  void end(bool skipped);

private:
  double *getSlots(size_t tensor) const {
    return reinterpret_cast<double *>(model.getSlots(model.tensors[tensor]));
  }

  const Model &model;
  /// The tensor whose carried scalar was looked at last, and the scalar of the
  /// step under way; no slot: none.
  size_t turn = 0;
  double *slot = nullptr;
  const double *recomputed = nullptr;
  double known = 0.0;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_CARRIED_H
