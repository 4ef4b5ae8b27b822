//===- Interval.cpp - what a value may be, but for rounding -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Interval.h"

#include "dialect/reference/Meaning.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

static constexpr double inf = std::numeric_limits<double>::infinity();

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

Bounds mlir::step::reference::roundTo(Format format, Bounds bounds) {
  for (Interval &element : bounds.elements)
    element = roundTo(format, element);
  return bounds;
}

Bounds mlir::step::reference::toBounds(const Tensor &tensor) {
  Bounds bounds{tensor.shape, {}};
  for (double element : tensor.elements)
    bounds.elements.push_back(Interval::of(element));
  return bounds;
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

/// `x` of exact results, and the roundings of these.
static Interval widen(Interval x, Format compute) {
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

/// The smallest interval of some numbers, which may be NaN: then `other` stands
/// for them.
static Interval span(ArrayRef<double> corners, double other, bool nan) {
  Interval result = {inf, -inf, nan};
  for (double corner : corners) {
    double value = std::isnan(corner) ? other : corner;
    result = hull(result, Interval::of(value));
  }
  result.nan = nan;
  return result;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

static bool holds(Interval x, double value) {
  return x.low <= value && value <= x.high;
}
static bool holdsInfinity(Interval x) {
  return holds(x, inf) || holds(x, -inf);
}
static bool allPoints(ArrayRef<Interval> x) {
  return llvm::all_of(x, [](Interval one) { return one.isPoint(); });
}
static bool noNumbers(ArrayRef<Interval> x) {
  return llvm::any_of(x, [](Interval one) { return !one.hasNumbers(); });
}
static bool anyNan(ArrayRef<Interval> x) {
  return llvm::any_of(x, [](Interval one) { return one.nan; });
}
static const Interval onlyNan = {inf, -inf, true};

static Interval boundNeg(ArrayRef<Interval> x, Format) {
  if (!x[0].hasNumbers())
    return x[0];
  return {-x[0].high, -x[0].low, x[0].nan};
}

static Interval boundAbs(ArrayRef<Interval> x, Format) {
  if (!x[0].hasNumbers())
    return x[0];
  double low = std::fabs(x[0].low), high = std::fabs(x[0].high);
  if (x[0].low <= 0.0 && x[0].high >= 0.0)
    return {0.0, std::max(low, high), x[0].nan};
  return {std::min(low, high), std::max(low, high), x[0].nan};
}

static Interval boundSqrt(ArrayRef<Interval> x, Format compute) {
  if (!x[0].hasNumbers() || x[0].high < 0.0)
    return onlyNan;
  // The root of -0 is -0.
  double low = x[0].low < 0.0 ? -0.0 : std::sqrt(x[0].low);
  return widen({low, std::sqrt(x[0].high), x[0].nan || x[0].low < 0.0},
               compute);
}

static double signOf(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }

static Interval boundSign(ArrayRef<Interval> x, Format) {
  if (!x[0].hasNumbers())
    return x[0];
  return {signOf(x[0].low), signOf(x[0].high), x[0].nan};
}

static Interval boundAdd(ArrayRef<Interval> x, Format compute) {
  if (noNumbers(x))
    return onlyNan;
  if (allPoints(x))
    return widen(Interval::of(x[0].low + x[1].low), compute);
  bool nan = anyNan(x) || (holds(x[0], inf) && holds(x[1], -inf)) ||
             (holds(x[0], -inf) && holds(x[1], inf));
  double low = x[0].low + x[1].low, high = x[0].high + x[1].high;
  low = std::isnan(low) ? -inf : low;
  high = std::isnan(high) ? inf : high;
  // x + -x is +0.
  return widen({low == 0.0 ? -0.0 : low, high == 0.0 ? 0.0 : high, nan},
               compute);
}

static Interval boundSub(ArrayRef<Interval> x, Format compute) {
  return boundAdd({x[0], boundNeg({x[1]}, compute)}, compute);
}

static Interval boundMul(ArrayRef<Interval> x, Format compute) {
  if (noNumbers(x))
    return onlyNan;
  if (allPoints(x))
    return widen(Interval::of(x[0].low * x[1].low), compute);
  bool nan = anyNan(x) || (holds(x[0], 0.0) && holdsInfinity(x[1])) ||
             (holds(x[1], 0.0) && holdsInfinity(x[0]));
  Interval result = span({x[0].low * x[1].low, x[0].low * x[1].high,
                          x[0].high * x[1].low, x[0].high * x[1].high},
                         0.0, nan);
  // The sign of a zero between others is not known.
  if (result.low == 0.0 && (x[0].low < 0.0 || x[1].low < 0.0 ||
                            std::signbit(x[0].low) || std::signbit(x[1].low)))
    result.low = -0.0;
  return widen(result, compute);
}

static Interval boundDiv(ArrayRef<Interval> x, Format compute) {
  if (noNumbers(x))
    return onlyNan;
  if (allPoints(x))
    return widen(Interval::of(x[0].low / x[1].low), compute);
  bool nan = anyNan(x) || (holds(x[0], 0.0) && holds(x[1], 0.0)) ||
             (holdsInfinity(x[0]) && holdsInfinity(x[1]));
  if (holds(x[1], 0.0)) {
    bool positive = x[1].low == 0.0 && !std::signbit(x[1].low);
    if (!positive)
      return {-inf, inf, nan};
    // A divisor of 0 or more: the largest gives the smallest magnitude.
    double least =
        std::isnan(x[0].low / x[1].high) ? 0.0 : x[0].low / x[1].high;
    double most =
        std::isnan(x[0].high / x[1].high) ? 0.0 : x[0].high / x[1].high;
    return widen({x[0].low < 0.0 ? -inf : least,
                  x[0].high > 0.0   ? inf
                  : x[0].high < 0.0 ? most
                                    : 0.0,
                  nan},
                 compute);
  }
  Interval result = span({x[0].low / x[1].low, x[0].low / x[1].high,
                          x[0].high / x[1].low, x[0].high / x[1].high},
                         0.0, nan);
  // Inf / Inf stands for any quotient, from 0 on.
  if (holdsInfinity(x[0]) && holdsInfinity(x[1]))
    result = hull(result, {-inf, inf, nan});
  return widen(result, compute);
}

static Interval boundMaximum(ArrayRef<Interval> x, Format) {
  if (noNumbers(x))
    return onlyNan;
  return {maximum(x[0].low, x[1].low), maximum(x[0].high, x[1].high),
          anyNan(x)};
}

static Interval boundMinimum(ArrayRef<Interval> x, Format compute) {
  return boundNeg(
      boundMaximum({boundNeg({x[0]}, compute), boundNeg({x[1]}, compute)},
                   compute),
      compute);
}

/// Where the weight may lie on both sides of a half, what either side makes.
static Interval boundLerp(ArrayRef<Interval> x, Format compute) {
  Interval difference = boundSub({x[1], x[0]}, compute);
  auto from = [&](Interval near, Interval factor) {
    return boundAdd({near, boundMul({factor, difference}, compute)}, compute);
  };
  Interval fromStart = from(x[0], x[2]);
  Interval fromEnd = from(x[1], boundSub({x[2], Interval::of(1.0)}, compute));
  if (noNumbers(x) || x[2].high < 0.5)
    return fromStart;
  return x[2].low < 0.5 ? hull(fromStart, fromEnd) : fromEnd;
}

BoundMeaning mlir::step::reference::getBoundMeaning(Operation *op) {
  return llvm::TypeSwitch<Operation *, BoundMeaning>(op)
      .Case([](NegOp) { return boundNeg; })
      .Case([](AbsOp) { return boundAbs; })
      .Case([](SqrtOp) { return boundSqrt; })
      .Case([](SignOp) { return boundSign; })
      .Case([](AddOp) { return boundAdd; })
      .Case([](SubOp) { return boundSub; })
      .Case([](MulOp) { return boundMul; })
      .Case([](DivOp) { return boundDiv; })
      .Case([](MaximumOp) { return boundMaximum; })
      .Case([](MinimumOp) { return boundMinimum; })
      .Case([](LerpOp) { return boundLerp; })
      .Default([](Operation *) { return nullptr; });
}

Interval mlir::step::reference::divide(Interval x, double divisor,
                                       Format compute) {
  return boundDiv({x, Interval::of(divisor)}, compute);
}

//===----------------------------------------------------------------------===//
// Powers
//===----------------------------------------------------------------------===//

/// Wider by what a power of many factors may be wrong.
static Interval loosen(Interval x) {
  if (!x.hasNumbers())
    return x;
  auto part = [](double end) {
    return std::isinf(end) ? 0.0 : 0x1p-44 * std::fabs(end) + 0x1p-1070;
  };
  return {x.low - part(x.low), x.high + part(x.high), x.nan};
}

Interval mlir::step::reference::powi(Interval base, int64_t exponent) {
  if (base.isPoint())
    return Interval::of(powi(base.getPoint(), exponent));
  if (!base.hasNumbers())
    return onlyNan;
  if (base.low < 0.0)
    return Interval::everything();
  double one = powi(base.low, exponent), other = powi(base.high, exponent);
  return loosen(span({one, other}, 0.0, base.nan));
}

Interval mlir::step::reference::pow(Interval base, Interval exponent) {
  if (base.isPoint() && exponent.isPoint())
    return Interval::of(pow(base.getPoint(), exponent.getPoint()));
  if (!base.hasNumbers() || !exponent.hasNumbers())
    return Interval::everything();
  // NaN alone where no exponent is an integer: (-0.3)^1.3, however 1.3 is
  // rounded.
  bool negative = base.high < 0.0 && std::isfinite(base.low);
  if (negative && std::floor(exponent.high) < exponent.low)
    return onlyNan;
  if (base.low < 0.0)
    return Interval::everything();
  // Monotone in each operand where the other stays.
  Interval result =
      span({pow(base.low, exponent.low), pow(base.low, exponent.high),
            pow(base.high, exponent.low), pow(base.high, exponent.high)},
           0.0, base.nan || exponent.nan);
  if (holds(base, 1.0) || holds(exponent, 0.0))
    result = hull(result, {1.0, 1.0, result.nan});
  return loosen(result);
}

//===----------------------------------------------------------------------===//
// Conditions
//===----------------------------------------------------------------------===//

static Truth truth(bool canHold, bool canFail) {
  return canHold && canFail ? Truth::Either
         : canHold          ? Truth::True
                            : Truth::False;
}

Truth mlir::step::reference::negate(Truth x) {
  return x == Truth::Either  ? x
         : x == Truth::False ? Truth::True
                             : Truth::False;
}

Truth mlir::step::reference::conjoin(Truth x, Truth y) {
  return truth(x != Truth::False && y != Truth::False,
               x != Truth::True || y != Truth::True);
}

Truth mlir::step::reference::disjoin(Truth x, Truth y) {
  return negate(conjoin(negate(x), negate(y)));
}

Truth mlir::step::reference::compare(Predicate predicate, Interval x,
                                     Interval y) {
  bool numbers = x.hasNumbers() && y.hasNumbers();
  bool less = numbers && x.low < y.high, more = numbers && x.high > y.low;
  bool equal = numbers && x.low <= y.high && y.low <= x.high;
  bool unordered = x.nan || y.nan;
  switch (predicate) {
  case Predicate::LT:
    return truth(less, equal || more || unordered);
  case Predicate::LE:
    return truth(less || equal, more || unordered);
  case Predicate::GT:
    return truth(more, equal || less || unordered);
  case Predicate::GE:
    return truth(more || equal, less || unordered);
  case Predicate::EQ:
    return truth(equal, less || more || unordered);
  case Predicate::NE:
    return truth(less || more || unordered, equal);
  }
  llvm_unreachable("not a predicate");
}

Truth mlir::step::reference::isFinite(Interval x) {
  bool infinite = x.nan || (x.hasNumbers() && holdsInfinity(x));
  bool finite = x.hasNumbers() && x.low < inf && x.high > -inf;
  return truth(finite, infinite);
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

Interval mlir::step::reference::combine(ReductionKind kind,
                                        ArrayRef<Interval> values) {
  if (kind == ReductionKind::Amax) {
    Interval result = Interval::of(-inf);
    for (Interval value : values)
      result = boundMaximum({result, value}, Format::F64);
    return result;
  }
  // Added to +0.0 a value stays what it is.
  if (values.size() == 1)
    return values.front();
  // n additions, each wrong by half a unit of a partial sum at most; and so are
  // those that are made here.
  Interval result = {0.0, 0.0, false};
  double size = 0.0;
  for (Interval value : values) {
    if (noNumbers({result, value})) {
      result = onlyNan;
      continue;
    }
    bool nan = result.nan || value.nan ||
               (holds(result, inf) && holds(value, -inf)) ||
               (holds(result, -inf) && holds(value, inf));
    double low = result.low + value.low, high = result.high + value.high;
    // Inf - Inf of end points that are alone is NaN and nothing else.
    if (nan && allPoints({result, value}) && std::isnan(low)) {
      result = onlyNan;
      continue;
    }
    result = {std::isnan(low) ? -inf : low, std::isnan(high) ? inf : high, nan};
    size += std::max(std::fabs(value.low), std::fabs(value.high));
  }
  if (!result.hasNumbers())
    return result;
  double error =
      std::isinf(size) ? 0.0 : 0x1p-51 * double(values.size()) * size;
  // A sum of one order may overflow where another does not.
  bool large = size > 0x1p1022 && !std::isinf(size);
  return {large && result.low < 0.0 ? -inf : result.low - error,
          large && result.high > 0.0 ? inf : result.high + error, result.nan};
}

std::vector<Interval> mlir::step::reference::reduce(
    ReductionKind kind, ArrayRef<std::vector<Interval>> inputs,
    ArrayRef<Axis> axes, ArrayRef<unsigned> positions) {
  Shape from, to;
  double count = 1;
  for (auto [position, axis] : llvm::enumerate(axes)) {
    bool reduced = llvm::is_contained(positions, position);
    from.push_back(axis.extent);
    to.push_back(reduced ? 1 : axis.extent);
    count *= reduced ? static_cast<double>(axis.extent) : 1.0;
  }
  std::vector<std::vector<Interval>> parts(getNumElements(to));
  for (ArrayRef<Interval> elements : inputs)
    for (auto [index, element] : llvm::enumerate(elements))
      parts[getBroadcastIndex(to, from, static_cast<int64_t>(index))].push_back(
          element);
  std::vector<Interval> result;
  for (ArrayRef<Interval> part : parts) {
    Interval whole = combine(kind, part);
    result.push_back(kind == ReductionKind::Mean
                         ? divide(whole, count, Format::F64)
                         : whole);
  }
  return result;
}
