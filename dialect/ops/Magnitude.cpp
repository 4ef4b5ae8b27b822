//===- Magnitude.cpp - abs, sqrt, sign, floor -----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/ops/Folds.h"
#include "dialect/ops/Parts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

//===----------------------------------------------------------------------===//
// step.abs
//===----------------------------------------------------------------------===//

static double evalAbs(ArrayRef<double> x, Format) { return std::fabs(x[0]); }

static Interval boundAbs(ArrayRef<Interval> x, Format) {
  if (!x[0].hasNumbers())
    return x[0];
  double low = std::fabs(x[0].low), high = std::fabs(x[0].high);
  if (x[0].low <= 0.0 && x[0].high >= 0.0)
    return {0.0, std::max(low, high), x[0].nan};
  return {std::min(low, high), std::max(low, high), x[0].nan};
}

OpFoldResult AbsOp::fold(FoldAdaptor adaptor) {
  if (getOperand().getDefiningOp<AbsOp>())
    return replaceBy(*this, getOperand());
  return foldUnary(*this, adaptor.getOperand(),
                   [](double x) { return std::fabs(x); });
}

ValueParts AbsOp::getParts() {
  return getNumberPartsAs<math::AbsFOp, evalAbs, boundAbs>("abs");
}

//===----------------------------------------------------------------------===//
// step.sqrt
//===----------------------------------------------------------------------===//

static double evalSqrt(ArrayRef<double> x, Format compute) {
  return roundTo(compute, std::sqrt(x[0]));
}

static Interval boundSqrt(ArrayRef<Interval> x, Format compute) {
  if (!x[0].hasNumbers() || x[0].high < 0.0)
    return Interval::of(std::numeric_limits<double>::quiet_NaN());
  // The root of -0 is -0.
  double low = x[0].low < 0.0 ? -0.0 : std::sqrt(x[0].low);
  return widen({low, std::sqrt(x[0].high), x[0].nan || x[0].low < 0.0},
               compute);
}

OpFoldResult SqrtOp::fold(FoldAdaptor adaptor) {
  return foldUnary(*this, adaptor.getOperand(),
                   [](double x) { return std::sqrt(x); });
}

ValueParts SqrtOp::getParts() {
  return getNumberPartsAs<math::SqrtOp, evalSqrt, boundSqrt>("sqrt");
}

//===----------------------------------------------------------------------===//
// step.sign
//===----------------------------------------------------------------------===//

/// x > 0 ? 1 : x < 0 ? -1 : x, so that zeros and NaN stay as they are.
static Value emitSign(OpBuilder &builder, Operation *op, ValueRange in, Type) {
  Location loc = op->getLoc();
  Value x = in[0];
  auto constant = [&](double value) {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getFloatAttr(x.getType(), value));
  };
  Value zero = constant(0.0);
  Value positive =
      arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGT, x, zero);
  Value negative =
      arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLT, x, zero);
  Value inner =
      arith::SelectOp::create(builder, loc, negative, constant(-1.0), x);
  return arith::SelectOp::create(builder, loc, positive, constant(1.0), inner);
}

static double signOf(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }

static double evalSign(ArrayRef<double> x, Format) { return signOf(x[0]); }

/// A sign that may be either is a jump.
static BoundElement boundSign(Operation *, ArrayRef<BoundElement> operands,
                              Format) {
  Interval x = operands[0].number;
  BoundElement result = operands[0];
  if (x.hasNumbers())
    result.number = {signOf(x.low), signOf(x.high), x.nan};
  result.isOpen = x.low < 0.0 && x.high > 0.0;
  return result;
}

OpFoldResult SignOp::fold(FoldAdaptor adaptor) {
  return foldUnary(*this, adaptor.getOperand(), [](double x) {
    return x > 0 ? 1.0 : x < 0 ? -1.0 : x;
  });
}

ValueParts SignOp::getParts() {
  ValueParts parts;
  parts.sharding = Sharding::Elementwise;
  parts.emit = emitSign;
  parts.evaluate = evaluateNumbers<evalSign>;
  parts.bound = boundSign;
  parts.jumps = true;
  return parts;
}

//===----------------------------------------------------------------------===//
// step.floor
//===----------------------------------------------------------------------===//

static double evalFloor(ArrayRef<double> x, Format) { return std::floor(x[0]); }

/// It jumps at integers.
static BoundElement boundFloor(Operation *, ArrayRef<BoundElement> operands,
                               Format) {
  Interval x = operands[0].number;
  BoundElement result = operands[0];
  if (!x.hasNumbers())
    return result;
  result.number = {std::floor(x.low), std::floor(x.high), x.nan};
  result.isOpen = result.number.low != result.number.high;
  return result;
}

OpFoldResult FloorOp::fold(FoldAdaptor adaptor) {
  if (getOperand().getDefiningOp<FloorOp>())
    return replaceBy(*this, getOperand());
  return foldUnary(*this, adaptor.getOperand(),
                   [](double x) { return std::floor(x); });
}

ValueParts FloorOp::getParts() {
  ValueParts parts;
  parts.sharding = Sharding::Elementwise;
  parts.symbol = "floor";
  parts.scalarOp = math::FloorOp::getOperationName();
  parts.emit = emitAs<math::FloorOp>;
  parts.evaluate = evaluateNumbers<evalFloor>;
  parts.bound = boundFloor;
  parts.jumps = true;
  return parts;
}
