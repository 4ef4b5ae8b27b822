//===- Evaluator.cpp - what one operation makes ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Evaluator.h"

#include <cmath>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Expected;

Tensor Evaluator::getTensor(Value value) const {
  if (const auto *scalar = std::get_if<double>(&get(value)))
    return Tensor{{}, {roundTo(compute, *scalar)}};
  return std::get<Tensor>(get(value));
}

Mask Evaluator::getMask(Value value) const {
  if (const auto *holds = std::get_if<bool>(&get(value)))
    return Mask{{}, {*holds}};
  return std::get<Mask>(get(value));
}

const Absent *Evaluator::findAbsent(ValueRange operands) const {
  for (Value operand : operands)
    if (const auto *absent = std::get_if<Absent>(&get(operand)))
      return absent;
  return nullptr;
}

Expected<Datum> Evaluator::evaluate(Operation *op) const {
  auto select = dyn_cast<SelectOp>(op);
  if (select && select.getCondition().getType().isInteger(1))
    return evaluateSelect(select);
  if (const Absent *absent = findAbsent(op->getOperands()))
    return Datum(*absent);

  if (auto constant = dyn_cast<ConstantOp>(op))
    return getConstant(constant);
  // What it is rounded for is what the rule returns it for.
  if (auto stored = dyn_cast<StoredOp>(op))
    return get(stored.getOperand());
  if (auto power = dyn_cast<PowiOp>(op))
    return Datum(powi(getScalar(power.getBase()),
                      std::get<int64_t>(get(power.getExponent()))));
  if (auto power = dyn_cast<PowOp>(op))
    return Datum(reference::pow(getScalar(power.getBase()),
                                getScalar(power.getExponent())));
  if (auto count = dyn_cast<ToF64Op>(op))
    return Datum(
        static_cast<double>(std::get<int64_t>(get(count.getOperand()))));
  if (auto reduction = dyn_cast<ReductionOpInterface>(op))
    return evaluateReduction(reduction);
  if (auto compare = dyn_cast<CompareOp>(op))
    return evaluateCompare(compare);
  if (auto finite = dyn_cast<IsFiniteOp>(op))
    return evaluateIsFinite(finite);
  if (isa<AndOp, OrOp, NotOp>(op))
    return evaluateLogical(op);
  if (select)
    return evaluateSelect(select);
  if (Meaning meaning = getMeaning(op))
    return evaluateArithmetic(op, meaning);
  return makeSourceError(op);
}

Datum Evaluator::evaluateArithmetic(Operation *op, Meaning meaning) const {
  Type type = op->getResult(0).getType();
  if (type.isF64()) {
    SmallVector<double> operands;
    for (Value operand : op->getOperands())
      operands.push_back(getScalar(operand));
    return meaning(operands, Format::F64);
  }
  SmallVector<Tensor> operands;
  for (Value operand : op->getOperands())
    operands.push_back(getTensor(operand));
  Tensor result = makeFilled(shapes.getShape(type), 0.0);
  SmallVector<double> elements(operands.size());
  for (size_t index = 0; index < result.elements.size(); ++index) {
    for (auto [element, operand] : llvm::zip(elements, operands))
      element = getBroadcast(operand, result.shape, index);
    result.elements[index] = meaning(elements, compute);
  }
  return result;
}

Datum Evaluator::evaluateReduction(ReductionOpInterface op) const {
  SmallVector<Axis> axes = shapes.getAxes(op.getInput().getType());
  SmallVector<unsigned> positions(op.getReducedPositions());
  if (op.isWhole())
    positions = llvm::to_vector(llvm::seq<unsigned>(0, axes.size()));
  std::vector<std::vector<double>> inputs;
  for (Value input : op.getInputs())
    inputs.push_back(getTensor(input).elements);
  std::vector<double> elements =
      reduce(op.getReductionKind(), std::move(inputs), axes, positions);
  if (op.isWhole())
    return elements.front();
  return roundTo(compute, Tensor{shapes.getShape(op->getResult(0).getType()),
                                 std::move(elements)});
}

Datum Evaluator::evaluateCompare(CompareOp op) const {
  Predicate predicate = op.getPredicate();
  if (op.getType().isInteger(1))
    return step::evaluate(predicate, getScalar(op.getLhs()),
                          getScalar(op.getRhs()));
  Tensor lhs = getTensor(op.getLhs()), rhs = getTensor(op.getRhs());
  Shape shape = shapes.getShape(op.getType());
  Mask result{shape, std::vector<char>(getNumElements(shape))};
  for (size_t index = 0; index < result.elements.size(); ++index)
    result.elements[index] =
        step::evaluate(predicate, getBroadcast(lhs, shape, index),
                       getBroadcast(rhs, shape, index));
  return result;
}

Datum Evaluator::evaluateIsFinite(IsFiniteOp op) const {
  if (op.getType().isInteger(1))
    return std::isfinite(getScalar(op.getOperand()));
  Tensor operand = getTensor(op.getOperand());
  Mask result{operand.shape, {}};
  for (double element : operand.elements)
    result.elements.push_back(std::isfinite(element));
  return result;
}

Datum Evaluator::evaluateLogical(Operation *op) const {
  SmallVector<Mask> operands;
  for (Value operand : op->getOperands())
    operands.push_back(getMask(operand));
  Type type = op->getResult(0).getType();
  Shape shape = shapes.getShape(type);
  Mask result{shape, std::vector<char>(getNumElements(shape))};
  for (size_t index = 0; index < result.elements.size(); ++index) {
    bool lhs = getBroadcast(operands.front(), shape, index);
    bool rhs = getBroadcast(operands.back(), shape, index);
    result.elements[index] = isa<NotOp>(op)   ? !lhs
                             : isa<AndOp>(op) ? lhs && rhs
                                              : lhs || rhs;
  }
  if (type.isInteger(1))
    return bool(result.elements.front());
  return result;
}

Datum Evaluator::evaluateSelect(SelectOp op) const {
  const Datum &condition = get(op.getCondition());
  if (const auto *absent = std::get_if<Absent>(&condition))
    return *absent;
  Shape shape = shapes.getShape(op.getType());
  if (const auto *holds = std::get_if<bool>(&condition)) {
    Value chosen = *holds ? op.getTrueValue() : op.getFalseValue();
    if (op.getType().isF64() || std::holds_alternative<Absent>(get(chosen)))
      return get(chosen);
    Tensor operand = getTensor(chosen), result = makeFilled(shape, 0.0);
    for (size_t index = 0; index < result.elements.size(); ++index)
      result.elements[index] = getBroadcast(operand, shape, index);
    return result;
  }
  const Mask &mask = std::get<Mask>(condition);
  Tensor ifTrue = getTensor(op.getTrueValue());
  Tensor ifFalse = getTensor(op.getFalseValue());
  Tensor result = makeFilled(shape, 0.0);
  for (size_t index = 0; index < result.elements.size(); ++index)
    result.elements[index] = getBroadcast(mask, shape, index)
                                 ? getBroadcast(ifTrue, shape, index)
                                 : getBroadcast(ifFalse, shape, index);
  return result;
}
