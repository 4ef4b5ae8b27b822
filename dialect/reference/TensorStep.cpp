//===- TensorStep.cpp - one tensor in a step ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/TensorStep.h"

#include "dialect/Reassociation.h"
#include "dialect/reference/BoundEvaluator.h"
#include "dialect/reference/Calls.h"
#include "dialect/reference/Evaluator.h"
#include "dialect/reference/StochasticRounding.h"

#include "mlir/IR/Builders.h"
#include "mlir/Transforms/RegionUtils.h"

#include <algorithm>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Error;
using llvm::Expected;

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

Error TensorStep::findStoredValues() {
  for (auto [argument, value] : getReturned()) {
    if (isAbsent(argument))
      continue;
    Format format = storages.at(argument);
    Stored own{format, getRole(argument).getName()};
    auto [entry, inserted] = stored.try_emplace(value, own);
    Format known = entry->second.format;
    if (std::min(known, format) == Format::F16 &&
        std::max(known, format) == Format::BF16)
      return makeError("a value of rule '" + rule.getSymName() +
                       "' is stored as both bf16 and f16, of which neither has "
                       "the values of the other");
    if (!inserted && format < known)
      entry->second = own;
  }
  return Error::success();
}

/// The value as it is stored.
Tensor TensorStep::round(Value value, const Stored &storage, Tensor tensor) {
  auto owner = cast<RuleOp>(value.getParentBlock()->getParentOp());
  BlockArgument param = owner.getArgumentOfKind(RoleKind::Param);
  if (!request.roundingSeed || storage.format != Format::BF16 || !param ||
      value.getType() != param.getType())
    return roundTo(storage.format, std::move(tensor));
  RandomStream stream{*request.roundingSeed, number, uint64_t(request.count),
                      storage.name};
  for (auto [index, element] : llvm::enumerate(tensor.elements))
    element = roundStochastically(element, stream, index);
  return tensor;
}

Error TensorStep::evaluate(Value value) {
  if (frame.find(value))
    return Error::success();
  if (auto argument = dyn_cast<BlockArgument>(value))
    return evaluateArgument(argument);
  return evaluateResult(cast<OpResult>(value));
}

/// The gradient that a fragment makes, as the next one or the rule sees it: to
/// these it is an argument, which is rounded only where it is stored. Or the
/// new param as it is stored, which a fragment after the rule sees.
Error TensorStep::evaluateArgument(BlockArgument argument) {
  RuleOp owner = cast<RuleOp>(argument.getOwner()->getParentOp());
  if (owner.comesAfter()) {
    Expected<Datum> param = collect(rule.getArgumentOfKind(RoleKind::Param),
                                    rule.getReturnedParam());
    if (!param)
      return param.takeError();
    frame.values[argument] = std::move(*param);
    return Error::success();
  }
  Value result;
  for (FragmentOp fragment : source.fragments) {
    if (fragment.getRule() == owner)
      break;
    if (!fragment.getRule().comesAfter())
      result = fragment.getRule().getReturn().getValues().front();
  }
  if (Error error = evaluate(result))
    return error;
  Datum datum = frame.get(result);
  frame.values[argument] = std::move(datum);
  return Error::success();
}

Expected<Datum> TensorStep::evaluateOperation(Operation *op,
                                              const Frame &operands) {
  if (jumps)
    return BoundEvaluator(operands, shapes, request.compute, *jumps, number)
        .evaluate(op);
  return Evaluator(operands, shapes, request.compute, number).evaluate(op);
}

/// In the form that the language gives it. In bound mode it may be what is
/// written, too.
Error TensorStep::evaluateReassociable(ReductionOpInterface reduction,
                                       Datum &datum) {
  OpBuilder builder(reduction.getContext());
  builder.setInsertionPointToEnd(&scratch);
  Value form = expandReassociable(builder, reduction);
  if (!form)
    return Error::success();
  if (Error error = evaluate(form))
    return error;
  const Datum &found = frame.get(form);
  if (!jumps || std::holds_alternative<Absent>(found))
    datum = found;
  else
    datum = hull(getInterval(datum), getInterval(found));
  return Error::success();
}

/// As it is stored, where the return stores it.
Datum TensorStep::store(Value value, Datum datum) {
  auto storage = stored.find(value);
  if (storage == stored.end())
    return datum;
  if (auto *tensor = std::get_if<Tensor>(&datum))
    return round(value, storage->second, std::move(*tensor));
  if (auto *bounds = std::get_if<Bounds>(&datum))
    return roundTo(storage->second.format, std::move(*bounds));
  return datum;
}

/// As a select between what the body makes and the old value, which computes
/// what it takes.
Error TensorStep::evaluateWhen(WhenOp when, OpResult result) {
  unsigned number = result.getResultNumber();
  OpBuilder builder(when.getContext());
  builder.setInsertionPointToEnd(&scratch);
  Value select = SelectOp::create(builder, when.getLoc(), when.getCondition(),
                                  when.getYield().getValues()[number],
                                  when.getOld()[number]);
  if (Error error = evaluate(select))
    return error;
  Datum datum = frame.get(select);
  frame.values[result] = store(result, std::move(datum));
  return Error::success();
}

Error TensorStep::evaluateResult(OpResult result) {
  Operation *op = result.getOwner();
  if (auto when = dyn_cast<WhenOp>(op))
    return evaluateWhen(when, result);
  SmallVector<Value> needed(op->getOperands());
  if (isa<RepeatOp>(op)) {
    llvm::SetVector<Value> seen;
    getUsedValuesDefinedAbove(op->getRegions(), seen);
    llvm::append_range(needed, seen);
  }
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
  auto evaluateInner = [&](Operation *inner, const Frame &local) {
    return evaluateOperation(inner, local);
  };
  if (auto call = dyn_cast<CallOp>(op))
    return evaluateCall(call, frame, evaluateInner);
  if (auto repeat = dyn_cast<RepeatOp>(op))
    return evaluateRepeat(repeat, frame, evaluateInner);
  Expected<Datum> datum = evaluateOperation(op, frame);
  if (!datum)
    return datum.takeError();
  auto reduction = dyn_cast<ReductionOpInterface>(op);
  if (reduction && reduction.getReassociable())
    if (Error error = evaluateReassociable(reduction, *datum))
      return error;
  frame.values[result] = store(result, std::move(*datum));
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

Expected<Datum> TensorStep::collect(BlockArgument argument, Value value) {
  if (Error error = evaluate(value))
    return error;
  const Datum &datum = frame.get(value);
  if (const auto *absent = std::get_if<Absent>(&datum))
    return makeError("the new value of '" + getRole(argument).getDisplayName() +
                     "' needs state '" + absent->state +
                     "', which exists only with option '" + absent->option +
                     "'");
  Format storage = storages.at(argument);
  if (!jumps) {
    const auto &tensor = std::get<Tensor>(datum);
    // Another argument that is returned as it is has not been rounded yet.
    if (isa<BlockArgument>(value) && value != argument)
      return Datum(round(value, {storage, stored.at(value).name}, tensor));
    return Datum(roundTo(storage, tensor));
  }
  // An argument is returned as it was given.
  const auto *tensor = std::get_if<Tensor>(&datum);
  return Datum(
      roundTo(storage, tensor ? toBounds(*tensor) : std::get<Bounds>(datum)));
}

Expected<Outcome> TensorStep::finish() {
  Outcome outcome;
  for (auto [argument, value] : getReturned()) {
    if (isAbsent(argument))
      continue;
    Expected<Datum> datum = collect(argument, value);
    if (!datum)
      return datum.takeError();
    bool isParam = getRole(argument).getKind() == RoleKind::Param;
    std::string name = getRole(argument).getName().str();
    if (auto *bounds = std::get_if<Bounds>(&*datum))
      (isParam ? outcome.paramBounds : outcome.stateBounds[name]) =
          std::move(*bounds);
    else
      (isParam ? outcome.param : outcome.states[name]) =
          std::get<Tensor>(std::move(*datum));
  }
  writeMaster(outcome);
  return outcome;
}

SmallVector<InitialState> TensorStep::makeInitialStates() {
  SmallVector<InitialState> states;
  for (BlockArgument argument : getArguments()) {
    RoleAttr role = getRole(argument);
    if (role.getKind() != RoleKind::State || isAbsent(argument))
      continue;
    states.push_back(
        {role.getName().str(), makeFilled(shapes.getShape(argument.getType()),
                                          role.getInit().getValueAsDouble())});
  }
  if (request.master != Master::None)
    states.push_back({getStateName(request.master).str(),
                      makeFilled(request.param.tensor.shape, 0.0)});
  return states;
}
