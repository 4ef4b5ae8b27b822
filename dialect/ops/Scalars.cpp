//===- Scalars.cpp - constants, counts, what is kept ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/ops/Folds.h"
#include "dialect/ops/Parts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

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
// step.carried
//===----------------------------------------------------------------------===//

/// Not computed at all: where it is kept is for the schedule stage.
ValueParts CarriedOp::getParts() { return {}; }
