//===- Powers.cpp - powers, exponentials, logarithms ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/HostFunctions.h"
#include "dialect/ops/Folds.h"
#include "dialect/ops/Parts.h"

#include <algorithm>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

// In scalar code they are themselves, of elements: they are expanded when all
// bodies are made of vectors.

/// What a function may be whose interval, but for rounding, is known.
static Interval roundLoosely(Interval x, Format compute) {
  return compute == Format::F64 ? loosen(x) : widen(loosen(x), compute);
}

//===----------------------------------------------------------------------===//
// step.powi
//===----------------------------------------------------------------------===//

static double powi(double base, int64_t exponent) {
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

static Element evaluatePowi(Operation *, ArrayRef<Element> x, Format) {
  return Element::of(powi(x[0].number, x[1].integer));
}

static Interval powi(Interval base, int64_t exponent) {
  if (base.isPoint())
    return Interval::of(powi(base.getPoint(), exponent));
  if (!base.hasNumbers())
    return onlyNan;
  if (base.low < 0.0)
    return Interval::everything();
  double one = powi(base.low, exponent), other = powi(base.high, exponent);
  return loosen(span({one, other}, 0.0, base.nan));
}

static BoundElement boundPowi(Operation *, ArrayRef<BoundElement> x, Format) {
  return BoundElement::of(powi(x[0].number, x[1].integer));
}

ValueParts PowiOp::getParts() {
  ValueParts parts;
  parts.emit = emitAs<PowiOp>;
  parts.evaluate = evaluatePowi;
  parts.bound = boundPowi;
  return parts;
}

//===----------------------------------------------------------------------===//
// step.pow
//===----------------------------------------------------------------------===//

static double evalPow(ArrayRef<double> x, Format compute) {
  return compute == Format::F64 ? hostPow(x[0], x[1])
                                : roundTo(compute, hostPowOfSingle(x[0], x[1]));
}

static Interval boundPow(ArrayRef<Interval> x, Format compute) {
  Interval base = x[0], exponent = x[1];
  if (base.isPoint() && exponent.isPoint())
    return Interval::of(
        evalPow({base.getPoint(), exponent.getPoint()}, compute));
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
  Interval result = span(
      {hostPow(base.low, exponent.low), hostPow(base.low, exponent.high),
       hostPow(base.high, exponent.low), hostPow(base.high, exponent.high)},
      0.0, base.nan || exponent.nan);
  if (holds(base, 1.0) || holds(exponent, 0.0))
    result = hull(result, {1.0, 1.0, result.nan});
  // Odd powers of -0 have its sign.
  if (std::signbit(base.low))
    result = hull(result, {-result.high, -result.low, result.nan});
  return roundLoosely(result, compute);
}

OpFoldResult PowOp::fold(FoldAdaptor adaptor) {
  return foldBinary(*this, adaptor.getBase(), adaptor.getExponent(), hostPow);
}

ValueParts PowOp::getParts() {
  return getNumberParts<evalPow, boundPow>(emitAs<PowOp>);
}

//===----------------------------------------------------------------------===//
// step.exp
//===----------------------------------------------------------------------===//

static double evalExp(ArrayRef<double> x, Format compute) {
  return roundTo(compute, hostExp(x[0]));
}

static Interval boundExp(ArrayRef<Interval> x, Format compute) {
  if (x[0].isPoint())
    return Interval::of(evalExp({x[0].getPoint()}, compute));
  if (!x[0].hasNumbers())
    return onlyNan;
  Interval result =
      roundLoosely({hostExp(x[0].low), hostExp(x[0].high), x[0].nan}, compute);
  result.low = std::max(result.low, 0.0);
  return result;
}

OpFoldResult ExpOp::fold(FoldAdaptor adaptor) {
  return foldUnary(*this, adaptor.getOperand(), hostExp);
}

ValueParts ExpOp::getParts() {
  return getNumberParts<evalExp, boundExp>(emitAs<ExpOp>);
}

//===----------------------------------------------------------------------===//
// step.log
//===----------------------------------------------------------------------===//

static double evalLog(ArrayRef<double> x, Format compute) {
  return roundTo(compute, hostLog(x[0]));
}

static Interval boundLog(ArrayRef<Interval> x, Format compute) {
  if (x[0].isPoint())
    return Interval::of(evalLog({x[0].getPoint()}, compute));
  if (!x[0].hasNumbers() || x[0].high < 0.0)
    return onlyNan;
  double low = x[0].low > 0.0 ? hostLog(x[0].low) : -inf;
  return roundLoosely({low, hostLog(x[0].high), x[0].nan || x[0].low < 0.0},
                      compute);
}

OpFoldResult LogOp::fold(FoldAdaptor adaptor) {
  return foldUnary(*this, adaptor.getOperand(), hostLog);
}

ValueParts LogOp::getParts() {
  return getNumberParts<evalLog, boundLog>(emitAs<LogOp>);
}
