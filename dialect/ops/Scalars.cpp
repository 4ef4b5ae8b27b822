//===- Scalars.cpp - constants, counts, what is due or kept ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/ops/Folds.h"
#include "dialect/ops/Parts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

//===----------------------------------------------------------------------===//
// step.constant
//===----------------------------------------------------------------------===//

/// The double rounded once to `type`.
static TypedAttr roundConstant(OpBuilder &builder, FloatAttr value, Type type) {
  APFloat number = value.getValue();
  bool losesInfo;
  number.convert(cast<FloatType>(type).getFloatSemantics(),
                 APFloat::rmNearestTiesToEven, &losesInfo);
  return builder.getFloatAttr(type, number);
}

static Value emitConstant(OpBuilder &builder, Operation *op, ValueRange,
                          Type type) {
  TypedAttr attr = cast<ConstantOp>(op).getValue();
  if (auto number = dyn_cast<FloatAttr>(attr))
    attr = roundConstant(builder, number, type);
  return arith::ConstantOp::create(builder, op->getLoc(), attr);
}

static Element evaluateConstant(Operation *op, ArrayRef<Element>, Format) {
  TypedAttr attr = cast<ConstantOp>(op).getValue();
  if (auto number = dyn_cast<FloatAttr>(attr))
    return Element::of(number.getValueAsDouble());
  return Element::ofInteger(cast<BoolAttr>(attr).getValue());
}

static BoundElement boundConstant(Operation *op, ArrayRef<BoundElement>,
                                  Format compute) {
  Element element = evaluateConstant(op, {}, compute);
  if (isa<FloatAttr>(cast<ConstantOp>(op).getValue()))
    return BoundElement::of(Interval::of(element.number));
  return BoundElement::of(element.holds() ? Truth::True : Truth::False);
}

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

template <typename Fn>
static OpFoldResult foldUnary(Operation *op, Attribute operand, Fn fn) {
  std::optional<double> value = asConstant(operand);
  return value ? foldTo(op->getContext(), fn(*value)) : OpFoldResult();
}

ValueParts ConstantOp::getParts() {
  ValueParts parts;
  parts.emit = emitConstant;
  parts.evaluate = evaluateConstant;
  parts.bound = boundConstant;
  return parts;
}

//===----------------------------------------------------------------------===//
// step.to_f64, step.to_i64
//===----------------------------------------------------------------------===//

static Value emitToF64(OpBuilder &b, Operation *op, ValueRange in, Type) {
  return arith::SIToFPOp::create(b, op->getLoc(), b.getF64Type(), in[0]);
}

static Element evaluateToF64(Operation *, ArrayRef<Element> x, Format) {
  return Element::of(static_cast<double>(x[0].integer));
}

static BoundElement boundToF64(Operation *, ArrayRef<BoundElement> x, Format) {
  return BoundElement::of(Interval::of(static_cast<double>(x[0].integer)));
}

ValueParts ToF64Op::getParts() {
  ValueParts parts;
  parts.emit = emitToF64;
  parts.evaluate = evaluateToF64;
  parts.bound = boundToF64;
  return parts;
}

static Value emitToI64(OpBuilder &b, Operation *op, ValueRange in, Type) {
  return arith::FPToSIOp::create(b, op->getLoc(), b.getI64Type(), in[0]);
}

/// Passes insert it: the interpreter does not meet it.
ValueParts ToI64Op::getParts() {
  ValueParts parts;
  parts.emit = emitToI64;
  return parts;
}

//===----------------------------------------------------------------------===//
// step.every
//===----------------------------------------------------------------------===//

static Value emitEvery(OpBuilder &b, Operation *op, ValueRange in, Type) {
  Location loc = op->getLoc();
  auto constant = [&](double value) {
    return arith::ConstantOp::create(b, loc, b.getF64FloatAttr(value));
  };
  Value count = arith::SIToFPOp::create(b, loc, b.getF64Type(), in[1]);
  Value before = arith::SubFOp::create(b, loc, count, constant(1.0));
  Value gap = arith::MaximumFOp::create(
      b, loc, math::FloorOp::create(b, loc, in[0]), constant(1.0));
  Value times =
      math::FloorOp::create(b, loc, arith::DivFOp::create(b, loc, before, gap));
  Value rest = arith::SubFOp::create(b, loc, before,
                                     arith::MulFOp::create(b, loc, gap, times));
  return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, rest,
                               constant(0.0));
}

static bool isDue(double gap, int64_t count) {
  double before = static_cast<double>(count) - 1.0;
  // NaN stays NaN, and is never due.
  double whole = std::floor(gap) < 1.0 ? 1.0 : std::floor(gap);
  return before - whole * std::floor(before / whole) == 0.0;
}

static Element evaluateEvery(Operation *, ArrayRef<Element> x, Format) {
  return Element::ofInteger(isDue(x[0].number, x[1].integer));
}

/// What is not known to the bit may be any number of steps.
static BoundElement boundEvery(Operation *, ArrayRef<BoundElement> x, Format) {
  Interval gap = x[0].number;
  if (gap.nan || gap.low != gap.high)
    return BoundElement::of(Truth::Either);
  return BoundElement::of(isDue(gap.low, x[1].integer) ? Truth::True
                                                       : Truth::False);
}

ValueParts EveryOp::getParts() {
  ValueParts parts;
  parts.emit = emitEvery;
  parts.evaluate = evaluateEvery;
  parts.bound = boundEvery;
  return parts;
}

//===----------------------------------------------------------------------===//
// step.carried
//===----------------------------------------------------------------------===//

/// Not computed at all: where it is kept is for the schedule stage.
ValueParts CarriedOp::getParts() { return {}; }
