//===- BoundEvaluator.cpp - what one operation may make ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/BoundEvaluator.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Expected;

Interval mlir::step::reference::getInterval(const Datum &datum) {
  if (const auto *number = std::get_if<double>(&datum))
    return Interval::of(*number);
  return std::get<Interval>(datum);
}

Truth mlir::step::reference::getTruth(const Datum &datum) {
  if (const auto *holds = std::get_if<bool>(&datum))
    return *holds ? Truth::True : Truth::False;
  return std::get<Truth>(datum);
}

/// A condition that is known is a bool: so options choose as in other modes.
static Datum toDatum(Truth truth) {
  if (truth == Truth::Either)
    return truth;
  return truth == Truth::True;
}

Interval BoundEvaluator::getScalar(Value value) const {
  return getInterval(get(value));
}

Bounds BoundEvaluator::getBounds(Value value) const {
  const Datum &datum = get(value);
  if (const auto *bounds = std::get_if<Bounds>(&datum))
    return *bounds;
  if (const auto *tensor = std::get_if<Tensor>(&datum))
    return toBounds(*tensor);
  return {{}, {roundTo(compute, getInterval(datum))}};
}

Mask BoundEvaluator::getMask(Value value) const {
  if (const auto *mask = std::get_if<Mask>(&get(value)))
    return *mask;
  return Mask{{}, {static_cast<char>(getTruth(get(value)))}};
}

Truth BoundEvaluator::count(Truth truth) const {
  ++jumps.elements;
  jumps.open += truth == Truth::Either;
  return truth;
}

Expected<Datum> BoundEvaluator::evaluate(Operation *op) const {
  if (auto select = dyn_cast<SelectOp>(op))
    return evaluateSelect(select);
  for (Value operand : op->getOperands())
    if (const auto *absent = std::get_if<Absent>(&get(operand)))
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
    return Datum(
        pow(getScalar(power.getBase()), getScalar(power.getExponent())));
  if (auto count = dyn_cast<ToF64Op>(op))
    return Datum(Interval::of(
        static_cast<double>(std::get<int64_t>(get(count.getOperand())))));
  if (auto reduction = dyn_cast<ReductionOpInterface>(op))
    return evaluateReduction(reduction);
  if (isa<CompareOp, IsFiniteOp, AndOp, OrOp, NotOp>(op))
    return evaluateCondition(op);
  if (BoundMeaning meaning = getBoundMeaning(op))
    return evaluateArithmetic(op, meaning);
  return makeSourceError(op);
}

Datum BoundEvaluator::evaluateArithmetic(Operation *op,
                                         BoundMeaning meaning) const {
  // A sign that may be either is a jump.
  auto note = [&](Interval operand) {
    if (isa<SignOp>(op))
      count(operand.low < 0.0 && operand.high > 0.0 ? Truth::Either
                                                    : Truth::True);
  };
  Type type = op->getResult(0).getType();
  if (type.isF64()) {
    SmallVector<Interval> operands;
    for (Value operand : op->getOperands())
      operands.push_back(getScalar(operand));
    note(operands.front());
    return meaning(operands, Format::F64);
  }
  SmallVector<Bounds> operands;
  for (Value operand : op->getOperands())
    operands.push_back(getBounds(operand));
  Shape shape = shapes.getShape(type);
  Bounds result{shape, {}};
  SmallVector<Interval> elements(operands.size(), Interval::of(0.0));
  for (int64_t index = 0, size = getNumElements(shape); index < size; ++index) {
    for (auto [element, operand] : llvm::zip(elements, operands))
      element = getBroadcast(operand, shape, index);
    note(elements.front());
    result.elements.push_back(meaning(elements, compute));
  }
  return result;
}

Datum BoundEvaluator::evaluateReduction(ReductionOpInterface op) const {
  Truth leftOut = Truth::False;
  if (op.getUnless())
    leftOut = static_cast<Truth>(getMask(op.getUnless()).elements.front());
  if (leftOut == Truth::True)
    return Interval::of(0.0);
  SmallVector<Axis> axes = shapes.getAxes(op.getInput().getType());
  SmallVector<unsigned> positions(op.getReducedPositions());
  if (op.isWhole())
    positions = llvm::to_vector(llvm::seq<unsigned>(0, axes.size()));
  std::vector<std::vector<Interval>> inputs;
  for (Value input : op.getInputs())
    inputs.push_back(getBounds(input).elements);
  std::vector<Interval> elements =
      reduce(op.getReductionKind(), inputs, axes, positions);
  if (op.isWhole())
    return leftOut == Truth::Either ? hull(elements.front(), Interval::of(0.0))
                                    : elements.front();
  for (Interval &element : elements)
    element = roundTo(compute, element);
  return Bounds{shapes.getShape(op->getResult(0).getType()),
                std::move(elements)};
}

Datum BoundEvaluator::evaluateCondition(Operation *op) const {
  Type type = op->getResult(0).getType();
  bool isJump = isa<CompareOp, IsFiniteOp>(op);
  bool isScalar = type.isInteger(1);
  Shape shape = isScalar ? Shape() : shapes.getShape(type);
  int64_t size = getNumElements(shape);
  // Scalars are not rounded to the compute format to be compared.
  auto number = [&](Value value) {
    return isScalar ? Bounds{{}, {getScalar(value)}} : getBounds(value);
  };
  Mask result{shape, std::vector<char>(size)};
  auto fill = [&](llvm::function_ref<Truth(int64_t)> decide) {
    for (int64_t index = 0; index < size; ++index) {
      Truth truth = decide(index);
      result.elements[index] = static_cast<char>(isJump ? count(truth) : truth);
    }
  };
  if (auto compared = dyn_cast<CompareOp>(op)) {
    Bounds lhs = number(compared.getLhs()), rhs = number(compared.getRhs());
    fill([&](int64_t index) {
      return compare(compared.getPredicate(), getBroadcast(lhs, shape, index),
                     getBroadcast(rhs, shape, index));
    });
  } else if (auto finite = dyn_cast<IsFiniteOp>(op)) {
    Bounds operand = number(finite.getOperand());
    fill([&](int64_t index) {
      return isFinite(getBroadcast(operand, shape, index));
    });
  } else {
    Mask lhs = getMask(op->getOperand(0));
    Mask rhs = getMask(op->getOperands().back());
    fill([&](int64_t index) {
      Truth x = static_cast<Truth>(getBroadcast(lhs, shape, index));
      Truth y = static_cast<Truth>(getBroadcast(rhs, shape, index));
      return isa<NotOp>(op)   ? negate(x)
             : isa<AndOp>(op) ? conjoin(x, y)
                              : disjoin(x, y);
    });
  }
  if (isScalar)
    return toDatum(static_cast<Truth>(result.elements.front()));
  return result;
}

Datum BoundEvaluator::evaluateSelect(SelectOp op) const {
  const Datum &condition = get(op.getCondition());
  if (const auto *absent = std::get_if<Absent>(&condition))
    return *absent;
  bool isScalar = op.getType().isF64();
  Shape shape = isScalar ? Shape() : shapes.getShape(op.getType());
  SmallVector<Value> chosen = {op.getTrueValue(), op.getFalseValue()};
  if (const auto *holds = std::get_if<bool>(&condition))
    chosen = {*holds ? op.getTrueValue() : op.getFalseValue()};
  SmallVector<Bounds> operands;
  for (Value value : chosen) {
    if (const auto *absent = std::get_if<Absent>(&get(value)))
      return *absent;
    operands.push_back(isScalar ? Bounds{{}, {getScalar(value)}}
                                : getBounds(value));
  }
  Mask mask = getMask(op.getCondition());
  Bounds result{shape, {}};
  for (int64_t index = 0, size = getNumElements(shape); index < size; ++index) {
    Truth truth = static_cast<Truth>(getBroadcast(mask, shape, index));
    Interval first = getBroadcast(operands.front(), shape, index);
    Interval last = getBroadcast(operands.back(), shape, index);
    result.elements.push_back(truth == Truth::True    ? first
                              : truth == Truth::False ? last
                                                      : hull(first, last));
  }
  if (isScalar)
    return result.elements.front();
  return result;
}
