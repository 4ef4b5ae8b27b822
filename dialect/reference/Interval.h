//===- Interval.h - what a value may be, but for rounding ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Intervals of doubles for the bound mode: they are computed from end points,
// and each operation widens them by what rounding to the compute format may be
// wrong.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_INTERVAL_H
#define STEPC_DIALECT_REFERENCE_INTERVAL_H

#include "dialect/reference/Reduction.h"
#include "dialect/reference/Tensor.h"

namespace mlir::step::reference {

/// All numbers from `low` to `high`, none where low > high; and NaN, if `nan`.
struct Interval {
  double low, high;
  bool nan;

  /// The value alone.
  static Interval of(double value);
  static Interval everything();

  bool hasNumbers() const { return low <= high; }
  /// True where it holds one value alone.
  bool isPoint() const;
  /// That value.
  double getPoint() const;
};

using Bounds = Array<Interval>;

/// Whether something holds. As an element of a mask: 0, 1 and 2.
enum class Truth : char { False, True, Either };

/// One element of a result from one of each operand, widened by a rounding to
/// `compute`.
using BoundMeaning = Interval (*)(ArrayRef<Interval> operands, Format compute);

/// The meaning of an arithmetic operation; null for any other operation.
BoundMeaning getBoundMeaning(Operation *op);

/// Everything that is in one or the other.
Interval hull(Interval x, Interval y);

/// What the numbers become in a format that they are rounded to once.
Interval roundTo(Format format, Interval x);
Bounds roundTo(Format format, Bounds bounds);

/// Each element alone.
Bounds toBounds(const Tensor &tensor);

Truth compare(Predicate predicate, Interval x, Interval y);
Truth isFinite(Interval x);
Truth negate(Truth x);
Truth conjoin(Truth x, Truth y);
Truth disjoin(Truth x, Truth y);

Interval powi(Interval base, int64_t exponent);
Interval pow(Interval base, Interval exponent);

/// `x` divided by a number, and rounded to `compute`.
Interval divide(Interval x, double divisor, Format compute);

/// Many values combined in f64, in any order.
Interval combine(ReductionKind kind, ArrayRef<Interval> values);

/// Of all `inputs`, row-major in `axes`, the elements reduced over the axes at
/// `positions`.
std::vector<Interval> reduce(ReductionKind kind,
                             ArrayRef<std::vector<Interval>> inputs,
                             ArrayRef<Axis> axes, ArrayRef<unsigned> positions);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_INTERVAL_H
