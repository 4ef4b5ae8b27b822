//===- Environment.cpp - what a rule's values stand for -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Environment.h"

#include "llvm/ADT/StringExtras.h"

#include <cmath>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Error;

Error mlir::step::reference::makeError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message.str());
}

Datum mlir::step::reference::getConstant(ConstantOp op) {
  if (auto number = dyn_cast<FloatAttr>(op.getValue()))
    return number.getValueAsDouble();
  return cast<BoolAttr>(op.getValue()).getValue();
}

/// "'rate' is no hyper-parameter of 'adamw', which has lr, beta1".
static Error makeUnknownError(StringRef name, StringRef what, StringRef owner,
                              ArrayRef<StringRef> known) {
  return makeError("'" + name + "' is no " + what + " of '" + owner +
                   "', which has " +
                   (known.empty() ? "none" : llvm::join(known, ", ")));
}

Error Environment::bind(OptimizerOp optimizer, const Request &request) {
  if (Error error = findRule(optimizer, request.rule))
    return error;
  for (auto constant : optimizer.getBody().getOps<ConstantOp>())
    values[constant.getResult()] = getConstant(constant);
  if (Error error = bindHypers(optimizer, request))
    return error;
  if (Error error = bindOptions(optimizer, request))
    return error;
  if (Error error = bindDims(request.param.tensor))
    return error;
  return bindArguments(request);
}

Error Environment::findRule(OptimizerOp optimizer, StringRef name) {
  SmallVector<StringRef> known;
  for (auto candidate : optimizer.getBody().getOps<RuleOp>()) {
    known.push_back(candidate.getSymName());
    if (candidate.getSymName() == name)
      rule = candidate;
  }
  if (!rule)
    return makeUnknownError(name, "rule", optimizer.getSymName(), known);
  if (rule.isBound())
    return makeError("rule '" + name +
                     "' is bound; the interpreter runs definitions");
  return Error::success();
}

Error Environment::bindHypers(OptimizerOp optimizer, const Request &request) {
  SmallVector<StringRef> known;
  for (auto hyper : optimizer.getBody().getOps<HyperOp>()) {
    known.push_back(hyper.getName());
    auto given = request.hypers.find(hyper.getName().str());
    values[hyper.getResult()] = given == request.hypers.end()
                                    ? hyper.getDefaultValue().convertToDouble()
                                    : given->second;
  }
  for (const auto &[name, value] : request.hypers)
    if (!llvm::is_contained(known, name))
      return makeUnknownError(name, "hyper-parameter", optimizer.getSymName(),
                              known);
  return Error::success();
}

Error Environment::bindOptions(OptimizerOp optimizer, const Request &request) {
  SmallVector<StringRef> known;
  for (auto option : optimizer.getBody().getOps<OptionOp>()) {
    StringRef name = option.getName();
    auto given = request.options.find(name.str());
    bool isGiven = given != request.options.end();
    if (!option.isDerived()) {
      known.push_back(name);
      values[option.getResult()] =
          isGiven ? given->second : *option.getDefaultValue();
      continue;
    }
    if (isGiven)
      return makeError("option '" + name + "' follows from hyper-parameter '" +
                       option.getHyper().getDefiningOp<HyperOp>().getName() +
                       "' and cannot be set");
    values[option.getResult()] = evaluate(
        *option.getPredicate(), std::get<double>(values.at(option.getHyper())),
        option.getThreshold()->convertToDouble());
  }
  for (const auto &[name, value] : request.options)
    if (!llvm::is_contained(known, name))
      return makeUnknownError(name, "option", optimizer.getSymName(), known);
  return Error::success();
}

Error Environment::bindArguments(const Request &request) {
  for (BlockArgument argument : rule.getBody().getArguments()) {
    unsigned index = argument.getArgNumber();
    RoleAttr role = rule.getRole(index);
    if (role.getKind() == RoleKind::Count)
      values[argument] = request.count;
    if (role.getKind() == RoleKind::Fresh)
      values[argument] = request.fresh;
    Value guard = rule.getGuard(index);
    if (!guard || std::get<bool>(values.at(guard)))
      continue;
    auto option = guard.getDefiningOp<OptionOp>();
    values[argument] =
        Absent{role.getName().str(), option ? option.getName().str() : "false"};
  }
  return Error::success();
}

Error Environment::bindDims(const Tensor &param) {
  paramShape = param.shape;
  ArrayRef<StringAttr> dims =
      getDims(rule.getArgumentOfKind(RoleKind::Param).getType());
  bool anyRank = dims.size() == 1 && dims[0].getValue() == "*";
  if (!anyRank && dims.size() != paramShape.size())
    return makeError("'param' has shape " + toString(paramShape) +
                     ", the rule wants " + Twine(dims.size()) + " dims");
  for (size_t index = 0; !anyRank && index < dims.size(); ++index) {
    StringRef name = dims[index].getValue();
    int64_t wanted = name == "1" ? 1 : paramShape[index];
    auto [entry, inserted] = extents.try_emplace(name.str(), wanted);
    if (entry->second != paramShape[index])
      return makeError("'param' has shape " + toString(paramShape) +
                       ", where dim '" + name + "' is " + Twine(entry->second) +
                       " and " + Twine(paramShape[index]));
  }
  return Error::success();
}

Shape Environment::getShape(Type type) const {
  Shape shape;
  for (StringAttr dim : getDims(type)) {
    if (dim.getValue() == "*")
      return paramShape;
    shape.push_back(dim.getValue() == "1" ? 1 : extents.at(dim.str()));
  }
  return shape;
}

bool Environment::isAbsent(unsigned index) {
  auto datum = values.find(rule.getBody().getArgument(index));
  return datum != values.end() && std::holds_alternative<Absent>(datum->second);
}

Error Environment::checkShape(unsigned index, const Tensor &tensor) const {
  RuleOp op = rule;
  StringRef name = op.getRole(index).getDisplayName();
  Shape wanted = getShape(op.getBody().getArgument(index).getType());
  if (tensor.shape != wanted)
    return makeError("'" + name + "' has shape " + toString(tensor.shape) +
                     ", expected " + toString(wanted));
  if (getNumElements(tensor.shape) !=
      static_cast<int64_t>(tensor.elements.size()))
    return makeError("'" + name + "' has shape " + toString(tensor.shape) +
                     " and " + Twine(tensor.elements.size()) + " elements");
  return Error::success();
}

Error Environment::bindTensor(unsigned index, const StoredTensor &stored,
                              Format compute) {
  if (Error error = checkShape(index, stored.tensor))
    return error;
  for (auto [position, element] : llvm::enumerate(stored.tensor.elements))
    if (!std::isnan(element) && roundTo(stored.storage, element) != element)
      return makeError("'" + rule.getRole(index).getDisplayName() +
                       "' is stored as " + getName(stored.storage) +
                       ", which does not have its element " + Twine(position));
  storages[index] = stored.storage;
  values[rule.getBody().getArgument(index)] = roundTo(compute, stored.tensor);
  return Error::success();
}

Error Environment::bindTensors(const Request &request) {
  SmallVector<StringRef> known;
  for (BlockArgument argument : rule.getBody().getArguments()) {
    unsigned index = argument.getArgNumber();
    RoleAttr role = rule.getRole(index);
    if (!role.isTensor())
      continue;
    const StoredTensor *stored =
        role.getKind() == RoleKind::Grad ? &request.grad : &request.param;
    if (role.getKind() == RoleKind::State) {
      StringRef name = role.getName();
      auto given = request.states.find(name.str());
      bool isGiven = given != request.states.end();
      if (isAbsent(index) && isGiven)
        return makeError("state '" + name +
                         "' is given and exists only with option '" +
                         std::get<Absent>(values.at(argument)).option + "'");
      if (isAbsent(index))
        continue;
      known.push_back(name);
      if (!isGiven)
        return makeError("state '" + name + "' is not given");
      stored = &given->second;
    }
    if (Error error = bindTensor(index, *stored, request.compute))
      return error;
  }
  for (const auto &[name, state] : request.states)
    if (!llvm::is_contained(known, name))
      return makeUnknownError(name, "state", rule.getSymName(), known);
  return Error::success();
}
