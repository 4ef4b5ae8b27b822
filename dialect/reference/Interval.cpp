//===- Interval.cpp - what a value may be, but for rounding -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Interval.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir::step::reference;

Interval Interval::of(double value) {
  if (std::isnan(value))
    return {inf, -inf, true};
  return {value, value, false};
}

Interval Interval::everything() { return {-inf, inf, true}; }

bool Interval::isPoint() const {
  // Of +0 and -0 one is meant: an end point of 0 stands for both.
  if (low == high)
    return !nan && std::signbit(low) == std::signbit(high);
  return nan && !hasNumbers();
}

double Interval::getPoint() const {
  return nan ? std::numeric_limits<double>::quiet_NaN() : low;
}

Interval mlir::step::reference::hull(Interval x, Interval y) {
  double low = std::min(x.low, y.low), high = std::max(x.high, y.high);
  // A zero that can be either is none of both alone.
  if (low == 0.0 && high == 0.0 && x.hasNumbers() && y.hasNumbers() &&
      (std::signbit(x.low) != std::signbit(y.low) ||
       std::signbit(x.high) != std::signbit(y.high))) {
    low = -0.0;
    high = 0.0;
  }
  return {low, high, x.nan || y.nan};
}

//===----------------------------------------------------------------------===//
// Rounding
//===----------------------------------------------------------------------===//

Interval mlir::step::reference::roundTo(Format format, Interval x) {
  if (!x.hasNumbers())
    return x;
  return {roundTo(format, x.low), roundTo(format, x.high), x.nan};
}

/// How far a rounding to the format may be from a number of that size: half a
/// unit in the last place, or of the smallest numbers.
static double getError(Format compute, double x) {
  if (compute == Format::F64)
    return 0x1p-52 * std::fabs(x) + 0x1p-1074; // with that of the end point
  return 0x1p-24 * std::fabs(x) + 0x1p-150;
}

/// Below this a number is rounded to the largest float or less, and to Inf from
/// there on.
static double getOverflow(Format compute) {
  return compute == Format::F64 ? inf : 0x1.ffffffp127;
}

Interval mlir::step::reference::widen(Interval x, Format compute) {
  if (!x.hasNumbers())
    return x;
  double low = x.low, high = x.high, overflow = getOverflow(compute);
  // No rounding changes a sign.
  if (!std::isinf(low))
    low = std::nextafter(low - getError(compute, low), -inf);
  if (!std::isinf(high))
    high = std::nextafter(high + getError(compute, high), inf);
  if (x.low >= 0.0)
    low = std::max(low, std::copysign(0.0, x.low));
  if (x.high <= 0.0)
    high = std::min(high, std::copysign(0.0, x.high));
  if (high >= overflow)
    high = inf;
  if (low <= -overflow)
    low = -inf;
  if (x.low >= overflow)
    low = inf;
  if (x.high <= -overflow)
    high = -inf;
  return {low, high, x.nan};
}

Interval mlir::step::reference::span(llvm::ArrayRef<double> corners,
                                     double other, bool nan) {
  Interval result = {inf, -inf, nan};
  for (double corner : corners) {
    double value = std::isnan(corner) ? other : corner;
    result = hull(result, Interval::of(value));
  }
  result.nan = nan;
  return result;
}

Interval mlir::step::reference::loosen(Interval x) {
  if (!x.hasNumbers())
    return x;
  auto part = [](double end) {
    return std::isinf(end) ? 0.0 : 0x1p-44 * std::fabs(end) + 0x1p-1070;
  };
  return {x.low - part(x.low), x.high + part(x.high), x.nan};
}

//===----------------------------------------------------------------------===//
// What is asked of intervals
//===----------------------------------------------------------------------===//

bool mlir::step::reference::holds(Interval x, double value) {
  return x.low <= value && value <= x.high;
}

bool mlir::step::reference::holdsInfinity(Interval x) {
  return holds(x, inf) || holds(x, -inf);
}

bool mlir::step::reference::allPoints(llvm::ArrayRef<Interval> x) {
  return llvm::all_of(x, [](Interval one) { return one.isPoint(); });
}

bool mlir::step::reference::noNumbers(llvm::ArrayRef<Interval> x) {
  return llvm::any_of(x, [](Interval one) { return !one.hasNumbers(); });
}

bool mlir::step::reference::anyNan(llvm::ArrayRef<Interval> x) {
  return llvm::any_of(x, [](Interval one) { return one.nan; });
}

Truth mlir::step::reference::toTruth(bool canHold, bool canFail) {
  return canHold && canFail ? Truth::Either
         : canHold          ? Truth::True
                            : Truth::False;
}
