//===- Evaluator.cpp - what one operation makes ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Evaluator.h"

#include "dialect/reference/Products.h"
#include "dialect/reference/RandomNormal.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Expected;

bool mlir::step::reference::isOnScalars(Operation *op) {
  return !isShaped(op->getResult(0).getType());
}

const Absent *mlir::step::reference::findAbsent(const Frame &frame,
                                                Operation *op) {
  SmallVector<Value> needed(op->getOperands());
  if (auto select = dyn_cast<SelectOp>(op))
    if (const auto *holds =
            std::get_if<bool>(&frame.get(select.getCondition())))
      needed = {*holds ? select.getTrueValue() : select.getFalseValue()};
  for (Value value : needed)
    if (const auto *absent = std::get_if<Absent>(&frame.get(value)))
      return absent;
  return nullptr;
}

Tensor Evaluator::getTensor(Value value) const {
  if (const auto *scalar = std::get_if<double>(&get(value)))
    return Tensor{{}, {roundTo(compute, *scalar)}};
  return std::get<Tensor>(get(value));
}

Array<Element> Evaluator::getElements(Value value, bool isScalar) const {
  Array<Element> result;
  // What a select does not take is not computed.
  const Datum *found = frame.find(value);
  if (!found) {
    result.elements = {Element()};
    return result;
  }
  const Datum &datum = *found;
  if (const auto *tensor = std::get_if<Tensor>(&datum)) {
    result.shape = tensor->shape;
    for (double element : tensor->elements)
      result.elements.push_back(Element::of(element));
  } else if (const auto *mask = std::get_if<Mask>(&datum)) {
    result.shape = mask->shape;
    for (char element : mask->elements)
      result.elements.push_back(Element::ofInteger(element));
  } else if (const auto *number = std::get_if<double>(&datum)) {
    result.elements = {
        Element::of(isScalar ? *number : roundTo(compute, *number))};
  } else if (const auto *holds = std::get_if<bool>(&datum)) {
    result.elements = {Element::ofInteger(*holds)};
  } else if (const auto *integer = std::get_if<int64_t>(&datum)) {
    result.elements = {Element::ofInteger(*integer)};
  } else {
    result.elements = {Element()}; // absent, and not taken
  }
  return result;
}

Expected<Datum> Evaluator::evaluate(Operation *op) const {
  if (const Absent *absent = findAbsent(frame, op))
    return Datum(*absent);
  if (auto reduction = dyn_cast<ReductionOpInterface>(op))
    return evaluateReduction(reduction);
  if (auto normal = dyn_cast<RandomNormalOp>(op))
    return evaluateNormals(normal);
  if (isMatrixOp(op))
    return evaluateMatrices(op);
  if (auto extent = dyn_cast<ExtentOp>(op))
    return static_cast<double>(shapes.getExtent(extent.getDimAttr()));
  auto value = dyn_cast<ValueOpInterface>(op);
  if (value && value.getParts().evaluate)
    return evaluateElements(value);
  return makeSourceError(op);
}

Datum Evaluator::evaluateElements(ValueOpInterface op) const {
  bool isScalar = isOnScalars(op);
  Format format = isScalar ? Format::F64 : compute;
  Type type = op->getResult(0).getType();
  Shape shape = isScalar ? Shape() : shapes.getShape(type);
  SmallVector<Array<Element>> operands;
  for (Value operand : op->getOperands())
    operands.push_back(getElements(operand, isScalar));
  auto evaluate = op.getParts().evaluate;
  SmallVector<Element> elements(operands.size());
  auto at = [&](int64_t index) {
    for (auto [element, operand] : llvm::zip(elements, operands))
      element = getBroadcast(operand, shape, index);
    return evaluate(op, elements, format);
  };
  if (isScalar) {
    Element result = at(0);
    if (type.isInteger(1))
      return result.holds();
    return type.isF64() ? Datum(result.number) : Datum(result.integer);
  }
  int64_t size = getNumElements(shape);
  if (isa<SymMaskType>(type)) {
    Mask mask{shape, std::vector<char>(size)};
    for (int64_t index = 0; index < size; ++index)
      mask.elements[index] = at(index).holds();
    return mask;
  }
  Tensor tensor = makeFilled(shape, 0.0);
  for (int64_t index = 0; index < size; ++index)
    tensor.elements[index] = at(index).number;
  return tensor;
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

Datum Evaluator::evaluateMatrices(Operation *op) const {
  std::vector<std::vector<double>> operands;
  for (Value operand : op->getOperands())
    operands.push_back(getTensor(operand).elements);
  return Tensor{shapes.getShape(op->getResult(0).getType()),
                computeMatrices<double>(op, shapes, operands, compute)};
}

Datum Evaluator::evaluateNormals(RandomNormalOp op) const {
  RandomStream stream{getNormalKey(std::get<double>(get(op.getSeed()))), number,
                      uint64_t(std::get<int64_t>(get(op.getCount()))),
                      op.getName()};
  Tensor result = makeFilled(shapes.getShape(op.getType()), 0.0);
  for (auto [index, element] : llvm::enumerate(result.elements))
    element = roundTo(compute, getNormal(stream, index));
  return result;
}
