//===- StochasticRounding.h - rounding to bf16 by random bits ---*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_STOCHASTICROUNDING_H
#define STEPC_DIALECT_REFERENCE_STOCHASTICROUNDING_H

#include "dialect/reference/Philox.h"

namespace mlir::step::reference {

/// The random number from 0 to 65535 of the element at `index`, in row-major
/// order of the whole tensor.
uint32_t getRandomHalf(const RandomStream &stream, uint64_t index);

/// The bf16 to which step.round_stochastic rounds an f32.
double roundStochastically(double value, const RandomStream &stream,
                           uint64_t index);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_STOCHASTICROUNDING_H
