//===- TensorStepArguments.cpp - what a rule is given -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/TensorStep.h"

#include "dialect/reference/Evaluator.h"
#include "dialect/reference/RuleChoice.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Error;
using llvm::Expected;

RoleAttr TensorStep::getRole(BlockArgument argument) {
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
