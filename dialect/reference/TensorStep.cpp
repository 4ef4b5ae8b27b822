//===- TensorStep.cpp - one tensor in a step ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/TensorStep.h"

#include "dialect/reference/BoundEvaluator.h"
#include "dialect/reference/Evaluator.h"

#include <cmath>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Error;
using llvm::Expected;

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

static bool holds(const RuleCondition &condition, ArrayRef<int64_t> shape,
                  const Frame &group) {
  ConditionAttr attr = condition.attr;
  if (attr.getKind() == ConditionKind::Option)
    return std::get<bool>(group.get(condition.operand)) ==
           (attr.getPredicate() == Predicate::EQ);
  int64_t rank = static_cast<int64_t>(shape.size()), actual = rank;
  if (attr.getKind() == ConditionKind::Extent) {
    int64_t dim = attr.getDim() < 0 ? attr.getDim() + rank : attr.getDim();
    if (dim < 0 || dim >= rank)
      return false;
    actual = shape[dim];
  }
  int64_t wanted = attr.getValue()
                       ? *attr.getValue()
                       : std::get<int64_t>(group.get(condition.operand));
  return evaluate(attr.getPredicate(), actual, wanted);
}

static bool takes(RuleOp rule, ArrayRef<int64_t> shape, const Frame &group) {
  Shapes shapes;
  Type type = rule.getArgumentOfKind(RoleKind::Param).getType();
  if (Error error = shapes.bind(type, shape)) {
    consumeError(std::move(error));
    return false;
  }
  return llvm::all_of(rule.getRuleConditions(),
                      [&](const RuleCondition &condition) {
                        return holds(condition, shape, group);
                      });
}

Expected<RuleOp> mlir::step::reference::chooseRule(const Source &source,
                                                   StringRef name,
                                                   ArrayRef<int64_t> shape,
                                                   const Frame &group) {
  OptimizerOp optimizer = source.optimizer;
  SmallVector<StringRef> known;
  RuleOp rule;
  for (auto candidate : optimizer.getBody().getOps<RuleOp>()) {
    known.push_back(candidate.getSymName());
    if (!rule && (name.empty() ? takes(candidate, shape, group)
                               : candidate.getSymName() == name))
      rule = candidate;
  }
  if (!rule && name.empty() && known.size() == 1)
    // Its error says more.
    rule = *optimizer.getBody().getOps<RuleOp>().begin();
  if (!rule && name.empty())
    return makeError("'" + optimizer.getSymName() +
                     "' has no rule for a param of shape " + toString(shape));
  if (!rule)
    return makeUnknownError(name, "rule", optimizer.getSymName(), known);
  if (rule.isBound())
    return makeError("rule '" + rule.getSymName() +
                     "' is bound; the interpreter runs definitions");
  return rule;
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

Error TensorStep::bind() {
  Expected<RuleOp> chosen = chooseRule(
      source, request.rule, request.param.tensor.shape, *frame.outer);
  if (!chosen)
    return chosen.takeError();
  rule = *chosen;
  Type type = rule.getArgumentOfKind(RoleKind::Param).getType();
  if (Error error = shapes.bind(type, request.param.tensor.shape))
    return error;
  bindArguments();
  return Error::success();
}

void TensorStep::bindArguments() {
  SmallVector<RuleOp> rules = {rule};
  for (FragmentOp fragment : source.fragments)
    rules.push_back(fragment.getRule());
  for (RuleOp one : rules) {
    if (BlockArgument count = one.getArgumentOfKind(RoleKind::Count))
      frame.values[count] = request.count;
    if (BlockArgument fresh = one.getArgumentOfKind(RoleKind::Fresh))
      frame.values[fresh] = request.fresh;
  }
  for (BlockArgument argument : rule.getBody().getArguments()) {
    Value guard = rule.getGuard(argument.getArgNumber());
    if (!guard || std::get<bool>(frame.get(guard)))
      continue;
    frame.values[argument] =
        Absent{rule.getRole(argument.getArgNumber()).getName().str(),
               source.getName(guard.getDefiningOp()).str()};
  }
}

bool TensorStep::isAbsent(unsigned index) {
  const Datum *datum = frame.find(rule.getBody().getArgument(index));
  return datum && std::holds_alternative<Absent>(*datum);
}

Error TensorStep::checkShape(unsigned index, const Tensor &tensor) {
  StringRef name = rule.getRole(index).getDisplayName();
  Shape wanted = shapes.getShape(rule.getBody().getArgument(index).getType());
  if (tensor.shape != wanted)
    return makeError("'" + name + "' has shape " + toString(tensor.shape) +
                     ", expected " + toString(wanted));
  if (getNumElements(tensor.shape) !=
      static_cast<int64_t>(tensor.elements.size()))
    return makeError("'" + name + "' has shape " + toString(tensor.shape) +
                     " and " + Twine(tensor.elements.size()) + " elements");
  return Error::success();
}

Error TensorStep::bindTensor(unsigned index, const StoredTensor &given) {
  if (Error error = checkShape(index, given.tensor))
    return error;
  for (auto [position, element] : llvm::enumerate(given.tensor.elements))
    if (!std::isnan(element) && roundTo(given.storage, element) != element)
      return makeError("'" + rule.getRole(index).getDisplayName() +
                       "' is stored as " + getName(given.storage) +
                       ", which does not have its element " + Twine(position));
  storages[index] = given.storage;
  Value argument = rule.getBody().getArgument(index);
  // The first fragment sees the gradient in the rule's place.
  if (rule.getRole(index).getKind() == RoleKind::Grad &&
      !source.fragments.empty())
    argument = FragmentOp(source.fragments.front())
                   .getRule()
                   .getArgumentOfKind(RoleKind::Grad);
  frame.values[argument] = roundTo(request.compute, given.tensor);
  return Error::success();
}

Error TensorStep::bindTensors() {
  SmallVector<StringRef> known;
  for (BlockArgument argument : rule.getBody().getArguments()) {
    unsigned index = argument.getArgNumber();
    RoleAttr role = rule.getRole(index);
    if (!role.isTensor())
      continue;
    const StoredTensor *tensor =
        role.getKind() == RoleKind::Grad ? &request.grad : &request.param;
    if (role.getKind() == RoleKind::State) {
      StringRef name = role.getName();
      auto given = request.states.find(name.str());
      bool isGiven = given != request.states.end();
      if (isAbsent(index) && isGiven)
        return makeError("state '" + name +
                         "' is given and exists only with option '" +
                         std::get<Absent>(frame.get(argument)).option + "'");
      if (isAbsent(index))
        continue;
      known.push_back(name);
      if (!isGiven)
        return makeError("state '" + name + "' is not given");
      tensor = &given->second;
    }
    if (Error error = bindTensor(index, *tensor))
      return error;
  }
  for (const auto &[name, state] : request.states)
    if (!llvm::is_contained(known, name))
      return makeUnknownError(name, "state", rule.getSymName(), known);
  findStoredValues();
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

void TensorStep::findStoredValues() {
  for (auto [index, value] :
       llvm::zip(rule.getReturnedArguments(), rule.getReturn().getValues())) {
    if (isAbsent(index))
      continue;
    Format format = storages.at(index);
    auto [entry, inserted] = stored.try_emplace(value, format);
    if (!inserted)
      entry->second = std::min(entry->second, format);
  }
}

Error TensorStep::evaluate(Value value) {
  if (frame.find(value))
    return Error::success();
  if (auto argument = dyn_cast<BlockArgument>(value))
    return evaluateGradient(argument);
  return evaluateResult(cast<OpResult>(value));
}

/// The gradient that a fragment makes, as the next one or the rule sees it. To
/// these it is an argument, which is rounded only where it is stored.
Error TensorStep::evaluateGradient(BlockArgument argument) {
  RuleOp owner = cast<RuleOp>(argument.getOwner()->getParentOp());
  Value result;
  for (FragmentOp fragment : source.fragments) {
    if (fragment.getRule() == owner)
      break;
    result = fragment.getRule().getReturn().getValues().front();
  }
  if (Error error = evaluate(result))
    return error;
  Datum datum = frame.get(result);
  frame.values[argument] = std::move(datum);
  return Error::success();
}

Error TensorStep::evaluateResult(OpResult result) {
  Operation *op = result.getOwner();
  SmallVector<Value> needed(op->getOperands());
  auto select = dyn_cast<SelectOp>(op);
  if (select && select.getCondition().getType().isInteger(1)) {
    if (Error error = evaluate(select.getCondition()))
      return error;
    const auto *condition =
        std::get_if<bool>(&frame.get(select.getCondition()));
    needed = {!condition || *condition ? select.getTrueValue()
                                       : select.getFalseValue()};
    if (std::holds_alternative<Truth>(frame.get(select.getCondition())))
      needed.push_back(select.getFalseValue());
  }
  for (Value operand : needed)
    if (Error error = evaluate(operand))
      return error;
  Expected<Datum> datum =
      jumps
          ? BoundEvaluator(frame, shapes, request.compute, *jumps).evaluate(op)
          : Evaluator(frame, shapes, request.compute).evaluate(op);
  if (!datum)
    return datum.takeError();
  auto storage = stored.find(result);
  auto *tensor = std::get_if<Tensor>(&*datum);
  if (tensor && storage != stored.end())
    *tensor = roundTo(storage->second, std::move(*tensor));
  auto *bounds = std::get_if<Bounds>(&*datum);
  if (bounds && storage != stored.end())
    *bounds = roundTo(storage->second, std::move(*bounds));
  frame.values[result] = std::move(*datum);
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

Expected<std::optional<Interval>>
TensorStep::contribute(StatisticOp statistic) {
  SmallVector<RuleOp> rules = {rule};
  for (FragmentOp fragment : source.fragments)
    rules.push_back(fragment.getRule());
  for (RuleOp one : rules)
    for (auto contribution : one.getBody().getOps<ContributeOp>()) {
      if (contribution.getStatistic() != statistic.getResult())
        continue;
      if (Error error = evaluate(contribution.getValue()))
        return error;
      const Datum &datum = frame.get(contribution.getValue());
      if (const auto *absent = std::get_if<Absent>(&datum))
        return makeError("what is contributed to '" +
                         source.getName(statistic) + "' needs state '" +
                         absent->state + "', which exists only with option '" +
                         absent->option + "'");
      return std::optional<Interval>(getInterval(datum));
    }
  return std::nullopt;
}

Expected<Datum> TensorStep::collect(unsigned index, Value value) {
  if (Error error = evaluate(value))
    return error;
  const Datum &datum = frame.get(value);
  if (const auto *absent = std::get_if<Absent>(&datum))
    return makeError("the new value of '" +
                     rule.getRole(index).getDisplayName() + "' needs state '" +
                     absent->state + "', which exists only with option '" +
                     absent->option + "'");
  Format storage = storages.at(index);
  if (!jumps)
    return Datum(roundTo(storage, std::get<Tensor>(datum)));
  // An argument is returned as it was given.
  const auto *tensor = std::get_if<Tensor>(&datum);
  return Datum(
      roundTo(storage, tensor ? toBounds(*tensor) : std::get<Bounds>(datum)));
}

Expected<Outcome> TensorStep::finish() {
  Outcome outcome;
  for (auto [index, value] :
       llvm::zip(rule.getReturnedArguments(), rule.getReturn().getValues())) {
    if (isAbsent(index))
      continue;
    Expected<Datum> datum = collect(index, value);
    if (!datum)
      return datum.takeError();
    bool isParam = rule.getRole(index).getKind() == RoleKind::Param;
    std::string name = rule.getRole(index).getName().str();
    if (auto *bounds = std::get_if<Bounds>(&*datum))
      (isParam ? outcome.paramBounds : outcome.stateBounds[name]) =
          std::move(*bounds);
    else
      (isParam ? outcome.param : outcome.states[name]) =
          std::get<Tensor>(std::move(*datum));
  }
  return outcome;
}

SmallVector<InitialState> TensorStep::makeInitialStates() {
  SmallVector<InitialState> states;
  for (BlockArgument argument : rule.getBody().getArguments()) {
    unsigned index = argument.getArgNumber();
    RoleAttr role = rule.getRole(index);
    if (role.getKind() != RoleKind::State || isAbsent(index))
      continue;
    states.push_back(
        {role.getName().str(), makeFilled(shapes.getShape(argument.getType()),
                                          role.getInit().getValueAsDouble())});
  }
  return states;
}
