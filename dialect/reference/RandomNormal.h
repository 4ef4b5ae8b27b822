//===- RandomNormal.h - normal random numbers -------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_RANDOMNORMAL_H
#define STEPC_DIALECT_REFERENCE_RANDOMNORMAL_H

#include "dialect/reference/Philox.h"

namespace mlir::step::reference {

/// The seed as a key: its bits, and of any NaN those of the quiet one.
uint64_t getNormalKey(double seed);

/// That of the element `index`, in f64.
double getNormal(const RandomStream &stream, uint64_t index);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_RANDOMNORMAL_H
