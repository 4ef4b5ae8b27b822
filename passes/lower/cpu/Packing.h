//===- Packing.h - operands as products read them ---------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_PACKING_H
#define STEPC_PASSES_LOWER_CPU_PACKING_H

#include "passes/lower/Products.h"

namespace mlir::step {

inline constexpr int64_t kPairScratchBytes = 32;

/// What is packed: `count` lines of `depth` numbers, in groups of `width`
/// lines, step by step along the depth. A step is a number of the compute type,
/// or a pair of bf16 in an i32, the first in its lower half. What is missing at
/// the ends is 0:
///
///   numbers, width 2   a0 b0  a1 b1  a2 b2
///   pairs              a1:a0 b1:b0  0:a2 0:b2
struct Packing {
  Matrix from; // rowStride: of lines; columnStride: along the depth
  Value count, depth;
  Value to;
  Type compute;
  bool inPairs;
  /// Of pairs: kPairScratchBytes of the function's own.
  Value scratch;

  Type getStep(OpBuilder &b) const {
    return inPairs ? Type(b.getI32Type()) : compute;
  }
  /// How many steps a line of `depth` numbers has.
  Value getSteps(const Words &w) const {
    return inPairs ? w.ceilDiv(depth, 2) : depth;
  }
};

void emitPacking(const Words &w, const Packing &packing, int64_t width);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_PACKING_H
