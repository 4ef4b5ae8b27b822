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

#include "dialect/reference/Rounding.h"

#include "llvm/ADT/ArrayRef.h"

#include <limits>

namespace mlir::step::reference {

inline constexpr double inf = std::numeric_limits<double>::infinity();

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

inline constexpr Interval onlyNan = {inf, -inf, true};

/// Whether something holds. As an element of a mask: 0, 1 and 2.
enum class Truth : char { False, True, Either };

/// Everything that is in one or the other.
Interval hull(Interval x, Interval y);

/// What the numbers become in a format that they are rounded to once.
Interval roundTo(Format format, Interval x);

/// `x` of exact results, and the roundings of these.
Interval widen(Interval x, Format compute);

/// The smallest interval of some numbers, which may be NaN: then `other` stands
/// for them.
Interval span(llvm::ArrayRef<double> corners, double other, bool nan);

/// Wider by what a function of many roundings may be wrong: 2^-44 of itself.
Interval loosen(Interval x);

bool holds(Interval x, double value);
bool holdsInfinity(Interval x);
bool allPoints(llvm::ArrayRef<Interval> x);
/// Whether one of them holds none.
bool noNumbers(llvm::ArrayRef<Interval> x);
bool anyNan(llvm::ArrayRef<Interval> x);

/// What can hold and what can fail.
Truth toTruth(bool canHold, bool canFail);

//===----------------------------------------------------------------------===//
// What reductions are made of too: dialect/ops/Arithmetic.cpp has them
//===----------------------------------------------------------------------===//

/// The larger value as step.maximum describes it.
double maximum(double x, double y);
Interval maximum(Interval x, Interval y);

/// The quotient, rounded to `compute`.
Interval divide(Interval x, Interval y, Format compute);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_INTERVAL_H
