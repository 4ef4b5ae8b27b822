//===- Arithmetic.cpp - sums, products, quotients, extrema ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/ops/Folds.h"
#include "dialect/ops/Parts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

//===----------------------------------------------------------------------===//
// step.neg, step.add, step.sub
//===----------------------------------------------------------------------===//

static double evalNeg(ArrayRef<double> x, Format) { return -x[0]; }

static Interval boundNeg(ArrayRef<Interval> x, Format) {
  if (!x[0].hasNumbers())
    return x[0];
  return {-x[0].high, -x[0].low, x[0].nan};
}

OpFoldResult NegOp::fold(FoldAdaptor adaptor) {
  // A stored inner value is rounded; what it was made of is not.
  auto inner = getOperand().getDefiningOp<NegOp>();
  if (inner && !isStoredDirectly(inner))
    return replaceBy(*this, inner.getOperand());
  return foldUnary(*this, adaptor.getOperand(), [](double x) { return -x; });
}

ValueParts NegOp::getParts() {
  return getNumberPartsAs<arith::NegFOp, evalNeg, boundNeg>("-");
}

static double evalAdd(ArrayRef<double> x, Format compute) {
  return roundTo(compute, x[0] + x[1]);
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

OpFoldResult AddOp::fold(FoldAdaptor adaptor) {
  if (isConstant(adaptor.getRhs(), -0.0))
    return replaceBy(*this, getLhs());
  if (isConstant(adaptor.getLhs(), -0.0))
    return replaceBy(*this, getRhs());
  return foldBinary(*this, adaptor.getLhs(), adaptor.getRhs(),
                    [](double x, double y) { return x + y; });
}

ValueParts AddOp::getParts() {
  return getNumberPartsAs<arith::AddFOp, evalAdd, boundAdd>("+");
}

static double evalSub(ArrayRef<double> x, Format compute) {
  return roundTo(compute, x[0] - x[1]);
}

static Interval boundSub(ArrayRef<Interval> x, Format compute) {
  return boundAdd({x[0], boundNeg({x[1]}, compute)}, compute);
}

OpFoldResult SubOp::fold(FoldAdaptor adaptor) {
  if (isConstant(adaptor.getRhs(), 0.0))
    return replaceBy(*this, getLhs());
  return foldBinary(*this, adaptor.getLhs(), adaptor.getRhs(),
                    [](double x, double y) { return x - y; });
}

ValueParts SubOp::getParts() {
  return getNumberPartsAs<arith::SubFOp, evalSub, boundSub>("-");
}

//===----------------------------------------------------------------------===//
// step.mul, step.div
//===----------------------------------------------------------------------===//

static double evalMul(ArrayRef<double> x, Format compute) {
  return roundTo(compute, x[0] * x[1]);
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

OpFoldResult MulOp::fold(FoldAdaptor adaptor) {
  if (isConstant(adaptor.getRhs(), 1.0))
    return replaceBy(*this, getLhs());
  if (isConstant(adaptor.getLhs(), 1.0))
    return replaceBy(*this, getRhs());
  return foldBinary(*this, adaptor.getLhs(), adaptor.getRhs(),
                    [](double x, double y) { return x * y; });
}

ValueParts MulOp::getParts() {
  return getNumberPartsAs<arith::MulFOp, evalMul, boundMul>("*");
}

static double evalDiv(ArrayRef<double> x, Format compute) {
  return roundTo(compute, x[0] / x[1]);
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

Interval mlir::step::reference::divide(Interval x, Interval y, Format compute) {
  return boundDiv({x, y}, compute);
}

OpFoldResult DivOp::fold(FoldAdaptor adaptor) {
  if (isConstant(adaptor.getRhs(), 1.0))
    return replaceBy(*this, getLhs());
  return foldBinary(*this, adaptor.getLhs(), adaptor.getRhs(),
                    [](double x, double y) { return x / y; });
}

ValueParts DivOp::getParts() {
  return getNumberPartsAs<arith::DivFOp, evalDiv, boundDiv>("/");
}

//===----------------------------------------------------------------------===//
// step.maximum, step.minimum
//===----------------------------------------------------------------------===//

double mlir::step::reference::maximum(double x, double y) {
  if (std::isnan(x) || std::isnan(y))
    return std::numeric_limits<double>::quiet_NaN();
  if (x == y) // +0 and -0 are equal; +0 is the larger.
    return std::signbit(x) ? y : x;
  return x > y ? x : y;
}

static double evalMaximum(ArrayRef<double> x, Format) {
  return maximum(x[0], x[1]);
}

static double evalMinimum(ArrayRef<double> x, Format) {
  if (std::isnan(x[0]) || std::isnan(x[1]))
    return std::numeric_limits<double>::quiet_NaN();
  if (x[0] == x[1])
    return std::signbit(x[0]) ? x[0] : x[1];
  return x[0] < x[1] ? x[0] : x[1];
}

static Interval boundMaximum(ArrayRef<Interval> x, Format) {
  if (noNumbers(x))
    return onlyNan;
  return {maximum(x[0].low, x[1].low), maximum(x[0].high, x[1].high),
          anyNan(x)};
}

Interval mlir::step::reference::maximum(Interval x, Interval y) {
  return boundMaximum({x, y}, Format::F64);
}

static Interval boundMinimum(ArrayRef<Interval> x, Format compute) {
  return boundNeg(
      boundMaximum({boundNeg({x[0]}, compute), boundNeg({x[1]}, compute)},
                   compute),
      compute);
}

/// The larger (`sign` 1) or smaller (`sign` -1) of two scalars, by IEEE
/// 754-2019.
static double foldExtremum(double x, double y, double sign) {
  if (std::isnan(x) || std::isnan(y))
    return std::numeric_limits<double>::quiet_NaN();
  if (x == y)
    return std::signbit(x) == (sign < 0) ? x : y;
  return (x > y) == (sign > 0) ? x : y;
}

OpFoldResult MaximumOp::fold(FoldAdaptor adaptor) {
  if (getLhs() == getRhs())
    return replaceBy(*this, getLhs());
  return foldBinary(*this, adaptor.getLhs(), adaptor.getRhs(),
                    [](double x, double y) { return foldExtremum(x, y, 1); });
}

ValueParts MaximumOp::getParts() {
  return getNumberPartsAs<arith::MaximumFOp, evalMaximum, boundMaximum>("max");
}

OpFoldResult MinimumOp::fold(FoldAdaptor adaptor) {
  if (getLhs() == getRhs())
    return replaceBy(*this, getLhs());
  return foldBinary(*this, adaptor.getLhs(), adaptor.getRhs(),
                    [](double x, double y) { return foldExtremum(x, y, -1); });
}

ValueParts MinimumOp::getParts() {
  return getNumberPartsAs<arith::MinimumFOp, evalMinimum, boundMinimum>("min");
}

//===----------------------------------------------------------------------===//
// step.lerp
//===----------------------------------------------------------------------===//

static double evalLerp(ArrayRef<double> x, Format compute) {
  double start = x[0], end = x[1], weight = x[2];
  double difference = evalSub({end, start}, compute);
  bool nearStart = weight < 0.5;
  double factor = nearStart ? weight : evalSub({weight, 1.0}, compute);
  double part = evalMul({factor, difference}, compute);
  return evalAdd({nearStart ? start : end, part}, compute);
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

OpFoldResult LerpOp::fold(FoldAdaptor adaptor) {
  std::optional<double> start = asConstant(adaptor.getStart());
  std::optional<double> end = asConstant(adaptor.getEnd());
  std::optional<double> weight = asConstant(adaptor.getWeight());
  if (!start || !end || !weight || !getType().isF64())
    return {};
  double difference = *end - *start;
  bool nearStart = *weight < 0.5;
  double product = (nearStart ? *weight : *weight - 1.0) * difference;
  return foldTo(getContext(), (nearStart ? *start : *end) + product);
}

ValueParts LerpOp::getParts() {
  return getNumberParts<evalLerp, boundLerp>(emitAs<LerpOp>);
}
