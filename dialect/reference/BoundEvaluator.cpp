//===- BoundEvaluator.cpp - what one operation may make ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/BoundEvaluator.h"

#include "dialect/reference/Evaluator.h"
#include "dialect/reference/Products.h"
#include "dialect/reference/RandomNormal.h"

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

Bounds BoundEvaluator::getBounds(Value value) const {
  const Datum &datum = get(value);
  if (const auto *bounds = std::get_if<Bounds>(&datum))
    return *bounds;
  if (const auto *tensor = std::get_if<Tensor>(&datum))
    return toBounds(*tensor);
  return {{}, {roundTo(compute, getInterval(datum))}};
}

Array<BoundElement> BoundEvaluator::getElements(Value value,
                                                bool isScalar) const {
  Array<BoundElement> result;
  // What a select does not take is not computed.
  const Datum *found = frame.find(value);
  if (!found) {
    result.elements = {BoundElement()};
    return result;
  }
  const Datum &datum = *found;
  if (const auto *mask = std::get_if<Mask>(&datum)) {
    result.shape = mask->shape;
    for (char element : mask->elements)
      result.elements.push_back(BoundElement::of(static_cast<Truth>(element)));
  } else if (std::holds_alternative<bool>(datum) ||
             std::holds_alternative<Truth>(datum)) {
    result.elements = {BoundElement::of(getTruth(datum))};
  } else if (const auto *integer = std::get_if<int64_t>(&datum)) {
    result.elements = {BoundElement::ofInteger(*integer)};
  } else if (std::holds_alternative<Absent>(datum)) {
    result.elements = {BoundElement()}; // not taken
  } else if (isScalar) {
    result.elements = {BoundElement::of(getInterval(datum))};
  } else {
    Bounds bounds = getBounds(value);
    result.shape = bounds.shape;
    for (Interval element : bounds.elements)
      result.elements.push_back(BoundElement::of(element));
  }
  return result;
}

Expected<Datum> BoundEvaluator::evaluate(Operation *op) const {
  if (const Absent *absent = findAbsent(frame, op))
    return Datum(*absent);
  if (auto reduction = dyn_cast<ReductionOpInterface>(op))
    return evaluateReduction(reduction);
  if (auto normal = dyn_cast<RandomNormalOp>(op))
    return evaluateNormals(normal);
  if (isMatrixOp(op))
    return evaluateMatrices(op);
  if (auto extent = dyn_cast<ExtentOp>(op))
    return Interval::of(
        static_cast<double>(shapes.getExtent(extent.getDimAttr())));
  auto value = dyn_cast<ValueOpInterface>(op);
  if (value && value.getParts().bound)
    return evaluateElements(value);
  return makeSourceError(op);
}

Datum BoundEvaluator::evaluateElements(ValueOpInterface op) const {
  bool isScalar = isOnScalars(op);
  // Scalars are not rounded to the compute format.
  Format format = isScalar ? Format::F64 : compute;
  Type type = op->getResult(0).getType();
  Shape shape = isScalar ? Shape() : shapes.getShape(type);
  SmallVector<Array<BoundElement>> operands;
  for (Value operand : op->getOperands())
    operands.push_back(getElements(operand, isScalar));
  ValueParts parts = op.getParts();
  SmallVector<BoundElement> elements(operands.size());
  auto at = [&](int64_t index) {
    for (auto [element, operand] : llvm::zip(elements, operands))
      element = getBroadcast(operand, shape, index);
    BoundElement result = parts.bound(op, elements, format);
    jumps.elements += parts.jumps;
    jumps.open += parts.jumps && result.isOpen;
    return result;
  };
  if (isScalar) {
    BoundElement result = at(0);
    if (type.isInteger(1))
      return toDatum(result.truth);
    return type.isF64() ? Datum(result.number) : Datum(result.integer);
  }
  int64_t size = getNumElements(shape);
  if (isa<SymMaskType>(type)) {
    Mask mask{shape, std::vector<char>(size)};
    for (int64_t index = 0; index < size; ++index)
      mask.elements[index] = static_cast<char>(at(index).truth);
    return mask;
  }
  Bounds bounds{shape, {}};
  for (int64_t index = 0; index < size; ++index)
    bounds.elements.push_back(at(index).number);
  return bounds;
}

Datum BoundEvaluator::evaluateReduction(ReductionOpInterface op) const {
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
    return elements.front();
  for (Interval &element : elements)
    element = roundTo(compute, element);
  return Bounds{shapes.getShape(op->getResult(0).getType()),
                std::move(elements)};
}

Datum BoundEvaluator::evaluateMatrices(Operation *op) const {
  std::vector<std::vector<Interval>> operands;
  for (Value operand : op->getOperands())
    operands.push_back(getBounds(operand).elements);
  return Bounds{shapes.getShape(op->getResult(0).getType()),
                computeMatrices<Interval>(op, shapes, operands, compute)};
}

/// Those of the seed, where it is known; else any, of which none is beyond 8.21
/// from 0.
Datum BoundEvaluator::evaluateNormals(RandomNormalOp op) const {
  Interval seed = getInterval(get(op.getSeed()));
  RandomStream stream{
      0, number, uint64_t(std::get<int64_t>(get(op.getCount()))), op.getName()};
  if (seed.isPoint())
    stream.seed = getNormalKey(seed.getPoint());
  Shape shape = shapes.getShape(op.getType());
  Bounds bounds{shape, {}};
  int64_t size = getNumElements(shape);
  for (int64_t index = 0; index < size; ++index)
    bounds.elements.push_back(
        seed.isPoint()
            ? Interval::of(roundTo(compute, getNormal(stream, index)))
            : Interval{-8.25, 8.25, false});
  return bounds;
}
