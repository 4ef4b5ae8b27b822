//===- Meaning.cpp - what an operation computes ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Meaning.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

static double evalNeg(ArrayRef<double> x, Format) { return -x[0]; }

static double evalAbs(ArrayRef<double> x, Format) { return std::fabs(x[0]); }

static double evalSqrt(ArrayRef<double> x, Format compute) {
  return roundTo(compute, std::sqrt(x[0]));
}

static double evalSign(ArrayRef<double> x, Format) {
  return x[0] > 0 ? 1.0 : x[0] < 0 ? -1.0 : x[0];
}

static double evalAdd(ArrayRef<double> x, Format compute) {
  return roundTo(compute, x[0] + x[1]);
}

static double evalSub(ArrayRef<double> x, Format compute) {
  return roundTo(compute, x[0] - x[1]);
}

static double evalMul(ArrayRef<double> x, Format compute) {
  return roundTo(compute, x[0] * x[1]);
}

static double evalDiv(ArrayRef<double> x, Format compute) {
  return roundTo(compute, x[0] / x[1]);
}

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

static double evalLerp(ArrayRef<double> x, Format compute) {
  double start = x[0], end = x[1], weight = x[2];
  double difference = evalSub({end, start}, compute);
  bool nearStart = weight < 0.5;
  double factor = nearStart ? weight : evalSub({weight, 1.0}, compute);
  double part = evalMul({factor, difference}, compute);
  return evalAdd({nearStart ? start : end, part}, compute);
}

Meaning mlir::step::reference::getMeaning(Operation *op) {
  return llvm::TypeSwitch<Operation *, Meaning>(op)
      .Case([](NegOp) { return evalNeg; })
      .Case([](AbsOp) { return evalAbs; })
      .Case([](SqrtOp) { return evalSqrt; })
      .Case([](SignOp) { return evalSign; })
      .Case([](AddOp) { return evalAdd; })
      .Case([](SubOp) { return evalSub; })
      .Case([](MulOp) { return evalMul; })
      .Case([](DivOp) { return evalDiv; })
      .Case([](MaximumOp) { return evalMaximum; })
      .Case([](MinimumOp) { return evalMinimum; })
      .Case([](LerpOp) { return evalLerp; })
      .Default([](Operation *) { return nullptr; });
}

double mlir::step::reference::powi(double base, int64_t exponent) {
  uint64_t magnitude = exponent < 0 ? -static_cast<uint64_t>(exponent)
                                    : static_cast<uint64_t>(exponent);
  double result = 1.0, factor = base;
  for (uint64_t n = magnitude; n != 0; n >>= 1) {
    if (n & 1)
      result = result * factor;
    factor = factor * factor;
  }
  return exponent < 0 ? 1.0 / result : result;
}
