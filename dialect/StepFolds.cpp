//===- StepFolds.cpp - folds that change no value ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A fold may replace a tensor by another one only where both have the same bits
// for every input: x * 1, x / 1, x - 0, x + (-0), but not x + 0, which turns -0
// into +0. Scalars fold in f64, as the compiled code computes them.
//
// A value that step.return stores is rounded where it is defined, so it must
// not be replaced by a value that has other uses; `step-mark-stored` makes the
// rounding an operation of its own, and until then such values do not fold.

#include "dialect/Step.h"

#include "mlir/IR/Matchers.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::step;

template <typename NumberT>
static bool compare(Predicate predicate, NumberT lhs, NumberT rhs) {
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
  return compare(predicate, lhs, rhs);
}
bool mlir::step::evaluate(Predicate predicate, int64_t lhs, int64_t rhs) {
  return compare(predicate, lhs, rhs);
}

/// The constant value of a scalar operand.
static std::optional<double> asConstant(Attribute attr) {
  if (auto number = dyn_cast_or_null<FloatAttr>(attr))
    return number.getValueAsDouble();
  return std::nullopt;
}

static bool isConstant(Attribute attr, double value) {
  std::optional<double> number = asConstant(attr);
  return number && *number == value &&
         std::signbit(*number) == std::signbit(value);
}

/// The attribute for a folded scalar. NaN does not fold: its bits are not the
/// language's business.
static OpFoldResult foldTo(MLIRContext *context, double value) {
  if (std::isnan(value))
    return {};
  return FloatAttr::get(Float64Type::get(context), value);
}

/// True where the result is stored by the rule's return as it is.
static bool isStoredDirectly(Operation *op) {
  return llvm::any_of(op->getUsers(),
                      [](Operation *user) { return isa<ReturnOp>(user); });
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

/// `value` as a fold of `op`, if it has the type of the result and may take its
/// place.
static OpFoldResult replaceBy(Operation *op, Value value) {
  if (value.getType() != op->getResult(0).getType() || isStoredDirectly(op))
    return {};
  return value;
}

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

template <typename Fn>
static OpFoldResult foldUnary(Operation *op, Attribute operand, Fn fn) {
  std::optional<double> value = asConstant(operand);
  return value ? foldTo(op->getContext(), fn(*value)) : OpFoldResult();
}

template <typename Fn>
static OpFoldResult foldBinary(Operation *op, Attribute lhs, Attribute rhs,
                               Fn fn) {
  std::optional<double> left = asConstant(lhs), right = asConstant(rhs);
  // A constant beside a tensor is no scalar result.
  if (!left || !right || !op->getResult(0).getType().isF64())
    return {};
  return foldTo(op->getContext(), fn(*left, *right));
}

OpFoldResult NegOp::fold(FoldAdaptor adaptor) {
  // A stored inner value is rounded; what it was made of is not.
  auto inner = getOperand().getDefiningOp<NegOp>();
  if (inner && !isStoredDirectly(inner))
    return replaceBy(*this, inner.getOperand());
  return foldUnary(*this, adaptor.getOperand(), [](double x) { return -x; });
}

OpFoldResult AbsOp::fold(FoldAdaptor adaptor) {
  if (getOperand().getDefiningOp<AbsOp>())
    return replaceBy(*this, getOperand());
  return foldUnary(*this, adaptor.getOperand(),
                   [](double x) { return std::fabs(x); });
}

OpFoldResult SqrtOp::fold(FoldAdaptor adaptor) {
  return foldUnary(*this, adaptor.getOperand(),
                   [](double x) { return std::sqrt(x); });
}

OpFoldResult SignOp::fold(FoldAdaptor adaptor) {
  return foldUnary(*this, adaptor.getOperand(), [](double x) {
    return x > 0 ? 1.0 : x < 0 ? -1.0 : x;
  });
}

OpFoldResult AddOp::fold(FoldAdaptor adaptor) {
  if (isConstant(adaptor.getRhs(), -0.0))
    return replaceBy(*this, getLhs());
  if (isConstant(adaptor.getLhs(), -0.0))
    return replaceBy(*this, getRhs());
  return foldBinary(*this, adaptor.getLhs(), adaptor.getRhs(),
                    [](double x, double y) { return x + y; });
}

OpFoldResult SubOp::fold(FoldAdaptor adaptor) {
  if (isConstant(adaptor.getRhs(), 0.0))
    return replaceBy(*this, getLhs());
  return foldBinary(*this, adaptor.getLhs(), adaptor.getRhs(),
                    [](double x, double y) { return x - y; });
}

OpFoldResult MulOp::fold(FoldAdaptor adaptor) {
  if (isConstant(adaptor.getRhs(), 1.0))
    return replaceBy(*this, getLhs());
  if (isConstant(adaptor.getLhs(), 1.0))
    return replaceBy(*this, getRhs());
  return foldBinary(*this, adaptor.getLhs(), adaptor.getRhs(),
                    [](double x, double y) { return x * y; });
}

OpFoldResult DivOp::fold(FoldAdaptor adaptor) {
  if (isConstant(adaptor.getRhs(), 1.0))
    return replaceBy(*this, getLhs());
  return foldBinary(*this, adaptor.getLhs(), adaptor.getRhs(),
                    [](double x, double y) { return x / y; });
}

OpFoldResult MaximumOp::fold(FoldAdaptor adaptor) {
  if (getLhs() == getRhs())
    return replaceBy(*this, getLhs());
  return foldBinary(*this, adaptor.getLhs(), adaptor.getRhs(),
                    [](double x, double y) { return foldExtremum(x, y, 1); });
}

OpFoldResult MinimumOp::fold(FoldAdaptor adaptor) {
  if (getLhs() == getRhs())
    return replaceBy(*this, getLhs());
  return foldBinary(*this, adaptor.getLhs(), adaptor.getRhs(),
                    [](double x, double y) { return foldExtremum(x, y, -1); });
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

OpFoldResult CompareOp::fold(FoldAdaptor adaptor) {
  std::optional<double> lhs = asConstant(adaptor.getLhs());
  std::optional<double> rhs = asConstant(adaptor.getRhs());
  if (!lhs || !rhs || !getType().isInteger(1))
    return {};
  return BoolAttr::get(getContext(), evaluate(getPredicate(), *lhs, *rhs));
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

OpFoldResult AndOp::fold(FoldAdaptor adaptor) {
  return foldLogical(*this, adaptor.getOperands(), true);
}

OpFoldResult OrOp::fold(FoldAdaptor adaptor) {
  return foldLogical(*this, adaptor.getOperands(), false);
}

OpFoldResult NotOp::fold(FoldAdaptor adaptor) {
  if (auto inner = getOperand().getDefiningOp<NotOp>())
    return inner.getOperand();
  if (auto constant = dyn_cast_or_null<BoolAttr>(adaptor.getOperand()))
    return BoolAttr::get(getContext(), !constant.getValue());
  return {};
}

OpFoldResult IsFiniteOp::fold(FoldAdaptor adaptor) {
  std::optional<double> value = asConstant(adaptor.getOperand());
  if (!value || !getType().isInteger(1))
    return {};
  return BoolAttr::get(getContext(), std::isfinite(*value));
}

OpFoldResult SelectOp::fold(FoldAdaptor adaptor) {
  if (auto condition = dyn_cast_or_null<BoolAttr>(adaptor.getCondition()))
    return replaceBy(*this,
                     condition.getValue() ? getTrueValue() : getFalseValue());
  if (getTrueValue() == getFalseValue())
    return replaceBy(*this, getTrueValue());
  return {};
}

OpFoldResult StoredOp::fold(FoldAdaptor) {
  // An argument that is stored for itself has its storage type already.
  auto argument = dyn_cast<BlockArgument>(getOperand());
  if (argument && getRoles() == ArrayRef<int64_t>(argument.getArgNumber()))
    return getOperand();
  return {};
}
