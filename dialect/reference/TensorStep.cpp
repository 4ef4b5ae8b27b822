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
#include "dialect/reference/RuleChoice.h"
#include "dialect/reference/StochasticRounding.h"

#include "mlir/IR/Builders.h"
#include "mlir/Transforms/RegionUtils.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Error;
using llvm::Expected;

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

static RoleAttr getRole(BlockArgument argument) {
  auto rule = cast<RuleOp>(argument.getOwner()->getParentOp());
  return rule.getRole(argument.getArgNumber());
}

SmallVector<BlockArgument> TensorStep::getArguments() {
  SmallVector<BlockArgument> arguments(rule.getBody().getArguments());
  for (FragmentOp fragment : source.fragments)
    for (BlockArgument argument : fragment.getRule().getBody().getArguments())
      if (getRole(argument).getKind() == RoleKind::State)
        arguments.push_back(argument);
  return arguments;
}

SmallVector<std::pair<BlockArgument, Value>> TensorStep::getReturned() {
  SmallVector<RuleOp> rules = {rule};
  for (FragmentOp fragment : source.fragments)
    if (fragment.getRule().comesAfter())
      rules.push_back(fragment.getRule());
  SmallVector<std::pair<BlockArgument, Value>> returned;
  for (RuleOp one : rules)
    for (auto [index, value] :
         llvm::zip(one.getReturnedArguments(), one.getReturn().getValues()))
      returned.emplace_back(one.getBody().getArgument(index), value);
  // What is given stays as it is.
  for (BlockArgument argument : rule.getBody().getArguments())
    if (getRole(argument).getGiven())
      returned.emplace_back(argument, argument);
  return returned;
}

Error TensorStep::bind() {
  Expected<RuleOp> chosen = chooseRule(
      source, request.rule, request.param.tensor.shape, *frame.outer);
  if (!chosen)
    return chosen.takeError();
  rule = *chosen;
  Type type = rule.getArgumentOfKind(RoleKind::Param).getType();
  if (Error error = shapes.bind(type, request.param.tensor.shape))
    return error;
  if (Error error = bindDims())
    return error;
  bindArguments();
  return Error::success();
}

/// Dims whose extents follow from the param's. A param without elements may
/// have such a dim without.
Error TensorStep::bindDims() {
  for (const BoundDim &dim : rule.getRuleDims()) {
    int64_t least = std::numeric_limits<int64_t>::max();
    if (dim.attr.getMost())
      least = *dim.attr.getMost();
    if (dim.operand)
      least = std::min(least, std::get<int64_t>(frame.outer->get(dim.operand)));
    for (auto of : dim.attr.getOf().getAsRange<StringAttr>())
      least = std::min(least, shapes.getExtent(of));
    int64_t per = dim.attr.getPer();
    int64_t extent = least <= 0 ? least : (least - 1) / per + 1;
    if (extent < 0 ||
        (extent == 0 && getNumElements(request.param.tensor.shape) > 0))
      return makeError("dim '" + dim.attr.getName().getValue() + "' of rule '" +
                       rule.getSymName() + "' is " + Twine(extent) +
                       " for a param of shape " +
                       toString(request.param.tensor.shape));
    shapes.bindDim(dim.attr.getName(), extent);
  }
  return Error::success();
}

/// A fresh holds where one of its states is created; where none of those
/// exists, in the tensor's first step. Of a fragment without states it is the
/// rule's.
void TensorStep::bindFreshes(RuleOp one) {
  RuleOp owner = one.isOfFragment() && !one.comesAfter() ? rule : one;
  for (BlockArgument fresh : one.getFreshes()) {
    ArrayAttr named = one.getRole(fresh.getArgNumber()).getStates();
    bool exists = false, holds = false;
    for (BlockArgument argument : owner.getBody().getArguments()) {
      RoleAttr role = owner.getRole(argument.getArgNumber());
      if (role.getKind() != RoleKind::State || isAbsent(argument) ||
          (named && !llvm::is_contained(named, role.getName())))
        continue;
      exists = true;
      holds |= isFresh(role.getName());
    }
    frame.values[fresh] = exists ? holds : request.fresh;
  }
}

void TensorStep::bindArguments() {
  SmallVector<RuleOp> rules = {rule};
  for (FragmentOp fragment : source.fragments)
    rules.push_back(fragment.getRule());
  for (RuleOp one : rules)
    if (BlockArgument count = one.getArgumentOfKind(RoleKind::Count))
      frame.values[count] = request.count;
  for (BlockArgument argument : rule.getBody().getArguments()) {
    Value guard = rule.getGuard(argument.getArgNumber());
    if (!guard || std::get<bool>(frame.get(guard)))
      continue;
    frame.values[argument] =
        Absent{rule.getRole(argument.getArgNumber()).getName().str(),
               source.getName(guard.getDefiningOp()).str()};
  }
  for (RuleOp one : rules)
    bindFreshes(one);
}

bool TensorStep::isAbsent(BlockArgument argument) {
  const Datum *datum = frame.find(argument);
  return datum && std::holds_alternative<Absent>(*datum);
}

Error TensorStep::checkShape(BlockArgument argument, const Tensor &tensor) {
  StringRef name = getRole(argument).getDisplayName();
  Shape wanted = shapes.getShape(argument.getType());
  if (tensor.shape != wanted)
    return makeError("'" + name + "' has shape " + toString(tensor.shape) +
                     ", expected " + toString(wanted));
  if (getNumElements(tensor.shape) !=
      static_cast<int64_t>(tensor.elements.size()))
    return makeError("'" + name + "' has shape " + toString(tensor.shape) +
                     " and " + Twine(tensor.elements.size()) + " elements");
  return Error::success();
}

Error TensorStep::bindTensor(BlockArgument argument,
                             const StoredTensor &given) {
  if (Error error = checkShape(argument, given.tensor))
    return error;
  for (auto [position, element] : llvm::enumerate(given.tensor.elements))
    if (!std::isnan(element) && roundTo(given.storage, element) != element)
      return makeError("'" + getRole(argument).getDisplayName() +
                       "' is stored as " + getName(given.storage) +
                       ", which does not have its element " + Twine(position));
  storages[argument] = given.storage;
  // The first fragment sees the gradient in the rule's place.
  if (getRole(argument).getKind() == RoleKind::Grad)
    for (FragmentOp fragment : source.fragments)
      if (!fragment.getRule().comesAfter()) {
        argument = fragment.getRule().getArgumentOfKind(RoleKind::Grad);
        break;
      }
  frame.values[argument] = roundTo(request.compute, given.tensor);
  return Error::success();
}

/// The param as the rule sees it: the f32 behind it, where there is one.
Expected<StoredTensor> TensorStep::readMaster() {
  if (request.master == Master::None)
    return request.param;
  Format storage = request.param.storage;
  if (storage != Format::BF16 &&
      (storage != Format::F16 || request.master == Master::Remainder))
    return makeError("a master is asked for of 'param', which is stored as " +
                     getName(storage) +
                     "; only bf16 has masters, and f16 those that are states");
  StringRef name = getStateName(request.master);
  auto given = request.states.find(name.str());
  if (given == request.states.end())
    return makeError("state '" + name + "' is not given");
  Format wanted = getStateFormat(request.master);
  if (given->second.storage != wanted)
    return makeError("state '" + name + "' is stored as " +
                     getName(given->second.storage) + ", expected " +
                     getName(wanted));
  const Tensor &param = request.param.tensor, &state = given->second.tensor;
  if (state.shape != param.shape)
    return makeError("'" + name + "' has shape " + toString(state.shape) +
                     ", expected " + toString(param.shape));
  return StoredTensor{
      getMaster(request.master, storage, param, state, isFresh(name)),
      Format::F32};
}

/// Rounds the param, and leaves the f32 behind it in its state.
void TensorStep::writeMaster(Outcome &outcome) {
  if (request.master == Master::None)
    return;
  Tensor &kept = outcome.states[getStateName(request.master).str()];
  kept = outcome.param;
  for (double &element : outcome.param.elements)
    element = roundToParam(request.param.storage, element);
  if (request.master == Master::Remainder)
    for (double &element : kept.elements)
      element = getLowerHalf(element);
}

Error TensorStep::bindTensors() {
  SmallVector<StringRef> known;
  Expected<StoredTensor> param = readMaster();
  if (!param)
    return param.takeError();
  if (request.master != Master::None)
    known.push_back(getStateName(request.master));
  for (BlockArgument argument : getArguments()) {
    RoleAttr role = getRole(argument);
    if (!role.isTensor())
      continue;
    const StoredTensor *tensor =
        role.getKind() == RoleKind::Grad ? &request.grad : &*param;
    if (role.getKind() == RoleKind::State) {
      StringRef name = role.getName();
      auto given = request.states.find(name.str());
      bool isGiven = given != request.states.end();
      if (llvm::is_contained(known, name))
        return makeError("state '" + name + "' of a fragment is one of rule '" +
                         rule.getSymName() + "'");
      if (isAbsent(argument) && isGiven)
        return makeError("state '" + name +
                         "' is given and exists only with option '" +
                         std::get<Absent>(frame.get(argument)).option + "'");
      if (isAbsent(argument))
        continue;
      known.push_back(name);
      if (!isGiven)
        return makeError("state '" + name + "' is not given");
      tensor = &given->second;
    }
    if (Error error = bindTensor(argument, *tensor))
      return error;
  }
  for (const auto &[name, state] : request.states)
    if (!llvm::is_contained(known, name))
      return makeUnknownError(name, "state", rule.getSymName(), known);
  return findStoredValues();
}

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
    return BoundEvaluator(operands, shapes, request.compute, *jumps)
        .evaluate(op);
  return Evaluator(operands, shapes, request.compute).evaluate(op);
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
