//===- RandomNormal.h - normal random numbers -------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_RANDOMNORMAL_H
#define STEPC_DIALECT_REFERENCE_RANDOMNORMAL_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace mlir::step::reference {

/// Which numbers step.random_normal gives.
struct NormalStream {
  double seed = 0.0;
  /// Of the tensor.
  uint64_t number = 0;
  int64_t count = 0;
  llvm::StringRef name;
};

/// That of the element `index`, in f64.
double getNormal(const NormalStream &stream, uint64_t index);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_RANDOMNORMAL_H
