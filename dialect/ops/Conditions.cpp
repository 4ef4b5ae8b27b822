//===- Conditions.cpp - comparisons, logic, select ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/ops/Folds.h"
#include "dialect/ops/Parts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

static ValueParts getConditionParts(decltype(ValueParts::emit) emit,
                                    decltype(ValueParts::evaluate) evaluate,
                                    decltype(ValueParts::bound) bound,
                                    bool jumps) {
  ValueParts parts;
  parts.sharding = Sharding::Elementwise;
  parts.emit = emit;
  parts.evaluate = evaluate;
  parts.bound = bound;
  parts.jumps = jumps;
  return parts;
}

/// What is open where it may be either.
static BoundElement toJump(Truth truth) {
  BoundElement result = BoundElement::of(truth);
  result.isOpen = truth == Truth::Either;
  return result;
}

//===----------------------------------------------------------------------===//
// step.compare
//===----------------------------------------------------------------------===//

template <typename NumberT>
static bool isSo(Predicate predicate, NumberT lhs, NumberT rhs) {
  switch (predicate) {
  case Predicate::LT:
    return lhs < rhs;
  case Predicate::LE:
    return lhs <= rhs;
  case Predicate::GT:
    return lhs > rhs;
  case Predicate::GE:
    return lhs >= rhs;
  case Predicate::EQ:
    return lhs == rhs;
  case Predicate::NE:
    return lhs != rhs;
  }
  llvm_unreachable("not a predicate");
}

bool mlir::step::evaluate(Predicate predicate, double lhs, double rhs) {
  return isSo(predicate, lhs, rhs);
}
bool mlir::step::evaluate(Predicate predicate, int64_t lhs, int64_t rhs) {
  return isSo(predicate, lhs, rhs);
}

static arith::CmpFPredicate getCmpPredicate(Predicate predicate) {
  switch (predicate) {
  case Predicate::LT:
    return arith::CmpFPredicate::OLT;
  case Predicate::LE:
    return arith::CmpFPredicate::OLE;
  case Predicate::GT:
    return arith::CmpFPredicate::OGT;
  case Predicate::GE:
    return arith::CmpFPredicate::OGE;
  case Predicate::EQ:
    return arith::CmpFPredicate::OEQ;
  case Predicate::NE:
    return arith::CmpFPredicate::UNE;
  }
  llvm_unreachable("not a predicate");
}

static Value emitCompare(OpBuilder &b, Operation *op, ValueRange in, Type) {
  Predicate predicate = cast<CompareOp>(op).getPredicate();
  return arith::CmpFOp::create(b, op->getLoc(), getCmpPredicate(predicate),
                               in[0], in[1]);
}

static Element evaluateCompare(Operation *op, ArrayRef<Element> x, Format) {
  return Element::ofInteger(
      isSo(cast<CompareOp>(op).getPredicate(), x[0].number, x[1].number));
}

static Truth compare(Predicate predicate, Interval x, Interval y) {
  bool numbers = x.hasNumbers() && y.hasNumbers();
  bool less = numbers && x.low < y.high, more = numbers && x.high > y.low;
  bool equal = numbers && x.low <= y.high && y.low <= x.high;
  bool unordered = x.nan || y.nan;
  switch (predicate) {
  case Predicate::LT:
    return toTruth(less, equal || more || unordered);
  case Predicate::LE:
    return toTruth(less || equal, more || unordered);
  case Predicate::GT:
    return toTruth(more, equal || less || unordered);
  case Predicate::GE:
    return toTruth(more || equal, less || unordered);
  case Predicate::EQ:
    return toTruth(equal, less || more || unordered);
  case Predicate::NE:
    return toTruth(less || more || unordered, equal);
  }
  llvm_unreachable("not a predicate");
}

static BoundElement boundCompare(Operation *op, ArrayRef<BoundElement> x,
                                 Format) {
  return toJump(
      compare(cast<CompareOp>(op).getPredicate(), x[0].number, x[1].number));
}

OpFoldResult CompareOp::fold(FoldAdaptor adaptor) {
  std::optional<double> lhs = asConstant(adaptor.getLhs());
  std::optional<double> rhs = asConstant(adaptor.getRhs());
  if (!lhs || !rhs || !getType().isInteger(1))
    return {};
  return BoolAttr::get(getContext(), isSo(getPredicate(), *lhs, *rhs));
}

ValueParts CompareOp::getParts() {
  return getConditionParts(emitCompare, evaluateCompare, boundCompare,
                           /*jumps=*/true);
}

//===----------------------------------------------------------------------===//
// step.is_finite
//===----------------------------------------------------------------------===//

/// NaN is not below infinity either.
static Value emitIsFinite(OpBuilder &builder, Operation *op, ValueRange in,
                          Type) {
  Location loc = op->getLoc();
  Value x = in[0];
  auto type = cast<FloatType>(x.getType());
  Value infinity = arith::ConstantOp::create(
      builder, loc,
      builder.getFloatAttr(type, APFloat::getInf(type.getFloatSemantics())));
  Value magnitude = math::AbsFOp::create(builder, loc, x);
  return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLT,
                               magnitude, infinity);
}

static Element evaluateIsFinite(Operation *, ArrayRef<Element> x, Format) {
  return Element::ofInteger(std::isfinite(x[0].number));
}

static Truth isFinite(Interval x) {
  bool infinite = x.nan || (x.hasNumbers() && holdsInfinity(x));
  bool finite = x.hasNumbers() && x.low < inf && x.high > -inf;
  return toTruth(finite, infinite);
}

static BoundElement boundIsFinite(Operation *, ArrayRef<BoundElement> x,
                                  Format) {
  return toJump(isFinite(x[0].number));
}

OpFoldResult IsFiniteOp::fold(FoldAdaptor adaptor) {
  std::optional<double> value = asConstant(adaptor.getOperand());
  if (!value || !getType().isInteger(1))
    return {};
  return BoolAttr::get(getContext(), std::isfinite(*value));
}

ValueParts IsFiniteOp::getParts() {
  return getConditionParts(emitIsFinite, evaluateIsFinite, boundIsFinite,
                           /*jumps=*/true);
}

//===----------------------------------------------------------------------===//
// step.and, step.or, step.not
//===----------------------------------------------------------------------===//

static Truth negate(Truth x) {
  return x == Truth::Either  ? x
         : x == Truth::False ? Truth::True
                             : Truth::False;
}

static Truth conjoin(Truth x, Truth y) {
  return toTruth(x != Truth::False && y != Truth::False,
                 x != Truth::True || y != Truth::True);
}

static Truth disjoin(Truth x, Truth y) {
  return negate(conjoin(negate(x), negate(y)));
}

/// `identity` is the operand that leaves the other one as it is; the opposite
/// one decides the result alone, where that is an i1.
static OpFoldResult foldLogical(Operation *op, ArrayRef<Attribute> constants,
                                bool identity) {
  for (unsigned index : {0, 1}) {
    auto constant = dyn_cast_or_null<BoolAttr>(constants[index]);
    if (constant && constant.getValue() == identity)
      return replaceBy(op, op->getOperand(1 - index));
    if (constant && op->getResult(0).getType().isInteger(1))
      return constant;
  }
  return op->getOperand(0) == op->getOperand(1)
             ? replaceBy(op, op->getOperand(0))
             : OpFoldResult();
}

static Element evaluateAnd(Operation *, ArrayRef<Element> x, Format) {
  return Element::ofInteger(x[0].holds() && x[1].holds());
}

static BoundElement boundAnd(Operation *, ArrayRef<BoundElement> x, Format) {
  return BoundElement::of(conjoin(x[0].truth, x[1].truth));
}

OpFoldResult AndOp::fold(FoldAdaptor adaptor) {
  return foldLogical(*this, adaptor.getOperands(), true);
}

ValueParts AndOp::getParts() {
  return getConditionParts(emitAs<arith::AndIOp>, evaluateAnd, boundAnd,
                           /*jumps=*/false);
}

static Element evaluateOr(Operation *, ArrayRef<Element> x, Format) {
  return Element::ofInteger(x[0].holds() || x[1].holds());
}

static BoundElement boundOr(Operation *, ArrayRef<BoundElement> x, Format) {
  return BoundElement::of(disjoin(x[0].truth, x[1].truth));
}

OpFoldResult OrOp::fold(FoldAdaptor adaptor) {
  return foldLogical(*this, adaptor.getOperands(), false);
}

ValueParts OrOp::getParts() {
  return getConditionParts(emitAs<arith::OrIOp>, evaluateOr, boundOr,
                           /*jumps=*/false);
}

static Value emitNot(OpBuilder &builder, Operation *op, ValueRange in, Type) {
  Location loc = op->getLoc();
  Value yes =
      arith::ConstantOp::create(builder, loc, builder.getBoolAttr(true));
  return arith::XOrIOp::create(builder, loc, in[0], yes);
}

static Element evaluateNot(Operation *, ArrayRef<Element> x, Format) {
  return Element::ofInteger(!x[0].holds());
}

static BoundElement boundNot(Operation *, ArrayRef<BoundElement> x, Format) {
  return BoundElement::of(negate(x[0].truth));
}

OpFoldResult NotOp::fold(FoldAdaptor adaptor) {
  if (auto inner = getOperand().getDefiningOp<NotOp>())
    return inner.getOperand();
  if (auto constant = dyn_cast_or_null<BoolAttr>(adaptor.getOperand()))
    return BoolAttr::get(getContext(), !constant.getValue());
  return {};
}

ValueParts NotOp::getParts() {
  return getConditionParts(emitNot, evaluateNot, boundNot, /*jumps=*/false);
}

//===----------------------------------------------------------------------===//
// step.select
//===----------------------------------------------------------------------===//

static Element evaluateSelect(Operation *, ArrayRef<Element> x, Format) {
  return x[0].holds() ? x[1] : x[2];
}

static BoundElement boundSelect(Operation *, ArrayRef<BoundElement> x, Format) {
  return x[0].truth == Truth::True ? x[1]
         : x[0].truth == Truth::False
             ? x[2]
             : BoundElement::of(hull(x[1].number, x[2].number));
}

OpFoldResult SelectOp::fold(FoldAdaptor adaptor) {
  if (auto condition = dyn_cast_or_null<BoolAttr>(adaptor.getCondition()))
    return replaceBy(*this,
                     condition.getValue() ? getTrueValue() : getFalseValue());
  if (getTrueValue() == getFalseValue())
    return replaceBy(*this, getTrueValue());
  return {};
}

ValueParts SelectOp::getParts() {
  return getConditionParts(emitAs<arith::SelectOp>, evaluateSelect, boundSelect,
                           /*jumps=*/false);
}
