//===- Bounds.h - tensors of intervals, and their reductions -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_BOUNDS_H
#define STEPC_DIALECT_REFERENCE_BOUNDS_H

#include "dialect/reference/Interval.h"
#include "dialect/reference/Reduction.h"
#include "dialect/reference/Tensor.h"

namespace mlir::step::reference {

using Bounds = Array<Interval>;

/// What the numbers become in a format that they are rounded to once.
Bounds roundTo(Format format, Bounds bounds);

/// Each element alone.
Bounds toBounds(const Tensor &tensor);

/// Many values combined in f64, in any order.
Interval combine(ReductionKind kind, ArrayRef<Interval> values);

/// Of all `inputs`, row-major in `axes`, the elements reduced over the axes at
/// `positions`.
std::vector<Interval> reduce(ReductionKind kind,
                             ArrayRef<std::vector<Interval>> inputs,
                             ArrayRef<Axis> axes, ArrayRef<unsigned> positions);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_BOUNDS_H
