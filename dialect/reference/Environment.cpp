//===- Environment.cpp - what a definition's values stand for ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Environment.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Error;

Error mlir::step::reference::makeError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message.str());
}

Error mlir::step::reference::makeUnknownError(StringRef name, StringRef what,
                                              StringRef owner,
                                              ArrayRef<StringRef> known) {
  return makeError("'" + name + "' is no " + what + " of '" + owner +
                   "', which has " +
                   (known.empty() ? "none" : llvm::join(known, ", ")));
}

Datum mlir::step::reference::getConstant(ConstantOp op) {
  if (auto number = dyn_cast<FloatAttr>(op.getValue()))
    return number.getValueAsDouble();
  return cast<BoolAttr>(op.getValue()).getValue();
}

const Datum *Frame::find(Value value) const {
  for (const Frame *frame = this; frame; frame = frame->outer) {
    auto found = frame->values.find(value);
    if (found != frame->values.end())
      return &found->second;
  }
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Source
//===----------------------------------------------------------------------===//

Source::Source(OptimizerOp optimizer) : optimizer(optimizer) {
  bodies.push_back(&optimizer.getBody().front());
  chooseNames(*bodies.back(), "");
  if (Block *block = optimizer->getBlock())
    for (auto fragment : block->getOps<FragmentOp>()) {
      fragments.push_back(fragment);
      bodies.push_back(&fragment.getBody().front());
      chooseNames(*bodies.back(), fragment.getSymName());
    }
}

void Source::chooseNames(Block &body, StringRef prefix) {
  auto isTaken = [&](Operation *op, StringRef name) {
    return llvm::any_of(names, [&](const auto &other) {
      return other.second == name &&
             isa<ReportOp>(op) == isa<ReportOp>(other.first);
    });
  };
  body.walk([&](Operation *op) {
    if (!isa<HyperOp, OptionOp, ScalarOp, StatisticOp, ReportOp>(op))
      return;
    std::string name = op->getAttrOfType<StringAttr>("name").str();
    if (isTaken(op, name))
      name = (prefix + "." + name).str();
    names[op] = std::move(name);
  });
}

//===----------------------------------------------------------------------===//
// Groups and the model
//===----------------------------------------------------------------------===//

static Error bindHypers(const Source &source,
                        const std::map<std::string, double> &given,
                        Frame &frame) {
  SmallVector<StringRef> known;
  for (HyperOp hyper : source.getOps<HyperOp>()) {
    StringRef name = source.getName(hyper);
    known.push_back(name);
    auto found = given.find(name.str());
    frame.values[hyper.getResult()] =
        found == given.end() ? hyper.getDefaultValue().convertToDouble()
                             : found->second;
  }
  StringRef owner = source.getName();
  for (const auto &[name, value] : given)
    if (!llvm::is_contained(known, name))
      return makeUnknownError(name, "hyper-parameter", owner, known);
  return Error::success();
}

/// What the option is if nothing is said of it.
static Datum getDefault(OptionOp option, const Frame &frame) {
  if (option.isInteger())
    return option.getDefaultIntegerAttr().getInt();
  if (!option.isDerived())
    return *option.getDefaultValue();
  return evaluate(*option.getPredicate(),
                  std::get<double>(frame.get(option.getHyper())),
                  option.getThreshold()->convertToDouble());
}

/// What is said of the option, if it can be.
static llvm::Expected<Datum> readOption(const Source &source, OptionOp option,
                                        const OptionValue &value) {
  StringRef name = source.getName(option);
  if (option.isDerived())
    return makeError("option '" + name + "' follows from hyper-parameter '" +
                     source.getName(option.getHyper().getDefiningOp()) +
                     "' and cannot be set");
  if (option.isInteger() != std::holds_alternative<int64_t>(value))
    return makeError("option '" + name + "' is " +
                     (option.isInteger() ? "an integer" : "true or false") +
                     ", and something else is given");
  if (option.isInteger())
    return Datum(std::get<int64_t>(value));
  return Datum(std::get<bool>(value));
}

static Error bindOptions(const Source &source,
                         const std::map<std::string, OptionValue> &given,
                         Frame &frame) {
  SmallVector<StringRef> known;
  for (OptionOp option : source.getOps<OptionOp>()) {
    StringRef name = source.getName(option);
    auto found = given.find(name.str());
    if (!option.isDerived())
      known.push_back(name);
    llvm::Expected<Datum> value =
        found == given.end() ? getDefault(option, frame)
                             : readOption(source, option, found->second);
    if (!value)
      return value.takeError();
    frame.values[option.getResult()] = std::move(*value);
  }
  StringRef owner = source.getName();
  for (const auto &[name, value] : given)
    if (!llvm::is_contained(known, name))
      return makeUnknownError(name, "option", owner, known);
  return Error::success();
}

static Error bindScalars(const Source &source, Scope scope,
                         const std::map<std::string, double> &given,
                         Frame &frame) {
  SmallVector<StringRef> known;
  for (ScalarOp scalar : source.getOps<ScalarOp>()) {
    if (scalar.getScope() != scope)
      continue;
    StringRef name = source.getName(scalar);
    known.push_back(name);
    auto found = given.find(name.str());
    frame.values[scalar.getResult()] = found == given.end()
                                           ? scalar.getInit().convertToDouble()
                                           : found->second;
  }
  std::string what = ("scalar over " + stringifyScope(scope)).str();
  for (const auto &[name, value] : given)
    if (!llvm::is_contained(known, name))
      return makeUnknownError(name, what, source.getName(), known);
  return Error::success();
}

Error mlir::step::reference::bindGroup(const Source &source,
                                       const GroupRequest &request,
                                       Frame &frame) {
  if (Error error = bindHypers(source, request.hypers, frame))
    return error;
  if (Error error = bindOptions(source, request.options, frame))
    return error;
  return bindScalars(source, Scope::Group, request.scalars, frame);
}

Error mlir::step::reference::makeSourceError(Operation *op) {
  return makeError("'" + op->getName().getStringRef() +
                   "' is no operation of a source definition");
}

/// Whether or not a step would come to it. Bound rules are refused when they
/// are chosen.
static Error requireSource(const Source &source) {
  for (RuleOp rule : source.getOps<RuleOp>())
    for (Operation &op : rule.getBody().front())
      if (!rule.isBound() && !isSourceOp(&op))
        return makeSourceError(&op);
  return Error::success();
}

Error mlir::step::reference::bindModel(
    const Source &source, const std::map<std::string, double> &scalars,
    Frame &frame) {
  if (Error error = requireSource(source))
    return error;
  for (ConstantOp constant : source.getOps<ConstantOp>())
    frame.values[constant.getResult()] = getConstant(constant);
  return bindScalars(source, Scope::Model, scalars, frame);
}
