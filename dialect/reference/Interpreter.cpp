//===- Interpreter.cpp - the meaning of a definition ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Interpreter.h"

#include "dialect/reference/Environment.h"
#include "dialect/reference/Meaning.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Error;
using llvm::Expected;

namespace {
/// The operations of a rule's body, one after the other.
class Evaluator {
public:
  Evaluator(Environment &environment, Format compute)
      : environment(environment), compute(compute) {}

  /// The value of the operation's result.
  Expected<Datum> evaluate(Operation *op);

private:
  Expected<Datum> evaluateArithmetic(Operation *op, Meaning meaning);
  Datum evaluateCompare(CompareOp op);
  Datum evaluateSelect(SelectOp op);

  const Datum &get(Value value) { return environment.values.at(value); }
  double getScalar(Value value) { return std::get<double>(get(value)); }

  /// The value as a tensor of the compute format: a scalar is rounded to it,
  /// once, where it meets a tensor.
  Tensor getTensor(Value value);

  /// The first operand that does not exist, if any.
  const Absent *findAbsent(ValueRange operands);

  Environment &environment;
  Format compute;
};
} // namespace

Tensor Evaluator::getTensor(Value value) {
  if (const auto *scalar = std::get_if<double>(&get(value)))
    return Tensor{{}, {roundTo(compute, *scalar)}};
  return std::get<Tensor>(get(value));
}

const Absent *Evaluator::findAbsent(ValueRange operands) {
  for (Value operand : operands)
    if (const auto *absent = std::get_if<Absent>(&get(operand)))
      return absent;
  return nullptr;
}

Expected<Datum> Evaluator::evaluate(Operation *op) {
  // A select by a scalar does not look at the operand that it leaves out.
  auto select = dyn_cast<SelectOp>(op);
  if (select && select.getCondition().getType().isInteger(1))
    return evaluateSelect(select);
  if (const Absent *absent = findAbsent(op->getOperands()))
    return Datum(*absent);

  if (auto constant = dyn_cast<ConstantOp>(op))
    return getConstant(constant);
  if (auto power = dyn_cast<PowiOp>(op))
    return Datum(powi(getScalar(power.getBase()),
                      std::get<int64_t>(get(power.getExponent()))));
  if (auto power = dyn_cast<PowOp>(op))
    return Datum(reference::pow(getScalar(power.getBase()),
                                getScalar(power.getExponent())));
  if (auto count = dyn_cast<ToF64Op>(op))
    return Datum(
        static_cast<double>(std::get<int64_t>(get(count.getOperand()))));
  if (auto compare = dyn_cast<CompareOp>(op))
    return evaluateCompare(compare);
  if (select)
    return evaluateSelect(select);
  if (Meaning meaning = getMeaning(op))
    return evaluateArithmetic(op, meaning);
  return makeError("'" + op->getName().getStringRef() +
                   "' is no operation of a source definition");
}

Expected<Datum> Evaluator::evaluateArithmetic(Operation *op, Meaning meaning) {
  Type type = op->getResult(0).getType();
  if (type.isF64()) {
    SmallVector<double> operands;
    for (Value operand : op->getOperands())
      operands.push_back(getScalar(operand));
    return Datum(meaning(operands, Format::F64));
  }
  SmallVector<Tensor> operands;
  for (Value operand : op->getOperands())
    operands.push_back(getTensor(operand));
  Tensor result = makeFilled(environment.getShape(type), 0.0);
  SmallVector<double> elements(operands.size());
  for (size_t index = 0; index < result.elements.size(); ++index) {
    for (auto [element, operand] : llvm::zip(elements, operands))
      element = getBroadcast(operand, result.shape, index);
    result.elements[index] = meaning(elements, compute);
  }
  return Datum(std::move(result));
}

Datum Evaluator::evaluateCompare(CompareOp op) {
  Predicate predicate = op.getPredicate();
  if (op.getType().isInteger(1))
    return step::evaluate(predicate, getScalar(op.getLhs()),
                          getScalar(op.getRhs()));
  Tensor lhs = getTensor(op.getLhs()), rhs = getTensor(op.getRhs());
  Shape shape = environment.getShape(op.getType());
  Mask result{shape, std::vector<char>(getNumElements(shape))};
  for (size_t index = 0; index < result.elements.size(); ++index)
    result.elements[index] =
        step::evaluate(predicate, getBroadcast(lhs, shape, index),
                       getBroadcast(rhs, shape, index));
  return result;
}

Datum Evaluator::evaluateSelect(SelectOp op) {
  const Datum &condition = get(op.getCondition());
  Shape shape = environment.getShape(op.getType());
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

/// The storage format of each value that the return stores in something that
/// exists; the narrowest where it stores the value twice. It is looked up for
/// results of operations only: a returned argument is rounded into what is
/// stored and nowhere else.
static DenseMap<Value, Format> findStoredValues(Environment &environment) {
  DenseMap<Value, Format> stored;
  RuleOp rule = environment.rule;
  for (auto [index, value] :
       llvm::zip(rule.getReturnedArguments(), rule.getReturn().getValues())) {
    if (environment.isAbsent(index))
      continue;
    Format format = environment.getStorage(index);
    auto [entry, inserted] = stored.try_emplace(value, format);
    if (!inserted)
      entry->second = std::min(entry->second, format);
  }
  return stored;
}

/// The new value of argument `index` in its storage format.
static Expected<Tensor> collect(Environment &environment, unsigned index,
                                Value value) {
  const Datum &datum = environment.values.at(value);
  if (const auto *absent = std::get_if<Absent>(&datum))
    return makeError("the new value of '" +
                     environment.rule.getRole(index).getDisplayName() +
                     "' needs state '" + absent->state +
                     "', which exists only with option '" + absent->option +
                     "'");
  return roundTo(environment.getStorage(index), std::get<Tensor>(datum));
}

static Expected<Outcome> collectOutcome(Environment &environment) {
  Outcome outcome;
  RuleOp rule = environment.rule;
  for (auto [index, value] :
       llvm::zip(rule.getReturnedArguments(), rule.getReturn().getValues())) {
    if (environment.isAbsent(index))
      continue;
    Expected<Tensor> tensor = collect(environment, index, value);
    if (!tensor)
      return tensor.takeError();
    if (rule.getRole(index).getKind() == RoleKind::Param)
      outcome.param = std::move(*tensor);
    else
      outcome.states[rule.getRole(index).getName().str()] = std::move(*tensor);
  }
  return outcome;
}

/// The request with every format f64, in f64 mode.
static Request applyMode(Request request) {
  if (request.mode == Mode::Exact)
    return request;
  request.compute = Format::F64;
  request.param.storage = request.grad.storage = Format::F64;
  for (auto &[name, state] : request.states)
    state.storage = Format::F64;
  return request;
}

Expected<Outcome> mlir::step::reference::interpret(OptimizerOp optimizer,
                                                   const Request &original) {
  if (!hostIsInDefaultMode())
    return makeError("the host's floating-point mode is not the default one: "
                     "to nearest, with denormals");
  Request request = applyMode(original);
  Environment environment;
  if (Error error = environment.bind(optimizer, request))
    return error;
  if (Error error = environment.bindTensors(request))
    return error;

  DenseMap<Value, Format> stored = findStoredValues(environment);
  Evaluator evaluator(environment, request.compute);
  for (Operation &op :
       environment.rule.getBody().front().without_terminator()) {
    Expected<Datum> datum = evaluator.evaluate(&op);
    if (!datum)
      return datum.takeError();
    auto storage = stored.find(op.getResult(0));
    auto *tensor = std::get_if<Tensor>(&*datum);
    if (tensor && storage != stored.end())
      *tensor = roundTo(storage->second, std::move(*tensor));
    environment.values[op.getResult(0)] = std::move(*datum);
  }
  return collectOutcome(environment);
}

Expected<SmallVector<InitialState>>
mlir::step::reference::makeInitialStates(OptimizerOp optimizer,
                                         const Request &request) {
  Environment environment;
  if (Error error = environment.bind(optimizer, request))
    return error;
  SmallVector<InitialState> states;
  for (BlockArgument argument : environment.rule.getBody().getArguments()) {
    unsigned index = argument.getArgNumber();
    RoleAttr role = environment.rule.getRole(index);
    if (role.getKind() != RoleKind::State || environment.isAbsent(index))
      continue;
    states.push_back({role.getName().str(),
                      makeFilled(environment.getShape(argument.getType()),
                                 role.getInit().getValueAsDouble())});
  }
  return states;
}
