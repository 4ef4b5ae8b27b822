//===- Reduction.h - sums, means and maxima in their order -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// The tree of docs/statistics.md. Compiled code must add in the same order, and
// shares nothing with what is here.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_REDUCTION_H
#define STEPC_DIALECT_REFERENCE_REDUCTION_H

#include "dialect/Step.h"

#include <vector>

namespace mlir::step::reference {

enum class Order {
  /// Leaves of 64 elements, one after the other.
  Sequence,
  /// Leaves of 1024 elements in 16 lanes.
  Lanes,
};

/// A dim of a value as reductions see it: `...b` and `*` are one.
struct Axis {
  int64_t extent;
  /// False for a dim that is written `1`.
  bool named;
};

/// One value of many, not divided: a mean is added up like a sum.
double combine(ReductionKind kind, Order order, ArrayRef<double> values);

/// Of each of `inputs`, row-major in `axes`, the elements reduced over the axes
/// at `positions`, whose extents become 1; then combined in their order, and
/// divided where that is a mean.
std::vector<double> reduce(ReductionKind kind,
                           std::vector<std::vector<double>> inputs,
                           const SmallVector<Axis> &axes,
                           ArrayRef<unsigned> positions);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_REDUCTION_H
