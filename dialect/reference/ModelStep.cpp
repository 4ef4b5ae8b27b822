//===- ModelStep.cpp - one step of several tensors ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/ModelStep.h"

#include "dialect/reference/BoundEvaluator.h"
#include "dialect/reference/Calls.h"
#include "dialect/reference/Evaluator.h"
#include "dialect/reference/Rounds.h"

#include "llvm/ADT/StringExtras.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Error;
using llvm::Expected;

Error ModelStep::bind() {
  if (Error error = bindModel(source, request.scalars, model))
    return error;
  for (const GroupRequest &group : request.groups) {
    groups.emplace_back().outer = &model;
    if (Error error = bindGroup(source, group, groups.back()))
      return error;
  }
  for (auto [index, tensor] : llvm::enumerate(request.tensors)) {
    if (tensor.group >= groups.size())
      return makeError("tensor " + Twine(index) + " is of group " +
                       Twine(tensor.group) + ", there are " +
                       Twine(groups.size()));
    if (tensor.master != Master::None && request.mode != Mode::Exact)
      return makeError("tensor " + Twine(index) +
                       " has a master, which is for exact mode only");
    if (tensor.roundingSeed && request.mode != Mode::Exact)
      return makeError("tensor " + Twine(index) +
                       " is rounded stochastically, which is for exact mode "
                       "only");
    tensors.emplace_back(source, tensor, index + 1, groups[tensor.group],
                         isBound() ? &outcome.jumps : nullptr);
    if (Error error = tensors.back().bind())
      return error;
    if (Error error = tensors.back().bindTensors())
      return error;
  }
  for (ScalarsOp scalars : source.getOps<ScalarsOp>())
    if (Error error = checkEqual(scalars))
      return error;
  return Error::success();
}

/// Whether a hyper-parameter or an option is the same in two groups.
static bool areSame(const Datum &one, const Datum &other) {
  if (const auto *number = std::get_if<double>(&one)) {
    double second = std::get<double>(other);
    return *number == second || (std::isnan(*number) && std::isnan(second));
  }
  return std::get<bool>(one) == std::get<bool>(other);
}

/// What is read over the model is the same in all groups.
Error ModelStep::checkEqual(ScalarsOp scalars) {
  if (scalars.getScope() != Scope::Model)
    return Error::success();
  if (groups.empty())
    return makeError("there is no group, whose hyper-parameters are needed");
  SmallVector<Value> read;
  collectOperands(scalars.getBody().front(), read);
  for (Value operand : read) {
    Operation *declared = operand.getDefiningOp();
    if (!isa_and_nonnull<HyperOp, OptionOp>(declared))
      continue;
    for (const Frame &group : groups)
      if (!areSame(group.get(operand), groups.front().get(operand)))
        return makeError("'" + source.getName(declared) +
                         "' is read over the model, and groups differ in it");
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Rounds
//===----------------------------------------------------------------------===//

Error ModelStep::computeStatistic(StatisticOp statistic, size_t group) {
  Frame &frame = getFrame(group);
  if (frame.values.count(statistic.getResult()))
    return Error::success();
  bool isSum = statistic.getKind() == ReductionKind::Sum;
  double identity = isSum ? 0.0 : -std::numeric_limits<double>::infinity();
  std::vector<Interval> contributions;
  for (auto [index, tensor] : llvm::enumerate(request.tensors)) {
    if (group != kModel && tensor.group != group)
      continue;
    contributions.push_back(Interval::of(identity));
    if (!tensor.participates)
      continue;
    auto contribution = tensors[index].contribute(statistic);
    if (!contribution)
      return contribution.takeError();
    contributions.back() = contribution->value_or(Interval::of(identity));
  }
  if (isBound()) {
    frame.values[statistic.getResult()] =
        combine(statistic.getKind(), contributions);
    return Error::success();
  }
  std::vector<double> numbers;
  for (Interval contribution : contributions)
    numbers.push_back(contribution.getPoint());
  frame.values[statistic.getResult()] =
      combine(statistic.getKind(), Order::Sequence, numbers);
  return Error::success();
}

/// What an operation without results does. Of a step that is skipped, too.
Error ModelStep::applyEffect(Operation *op, size_t group, const Frame &local) {
  if (auto update = dyn_cast<UpdateOp>(op)) {
    updates.push_back(
        {update, group, getInterval(local.get(update.getValue()))});
  } else if (auto report = dyn_cast<ReportOp>(op)) {
    setReport(source.getName(report).str(), group,
              getInterval(local.get(report.getValue())));
  } else if (auto skip = dyn_cast<SkipIfOp>(op)) {
    Truth truth = getTruth(local.get(skip.getCondition()));
    if (truth == Truth::Either)
      return makeError("rounding may decide whether the step is skipped");
    outcome.skipped |= truth == Truth::True;
  } else {
    return makeError("'" + op->getName().getStringRef() +
                     "' is no operation of a source definition");
  }
  return Error::success();
}

Error ModelStep::runScalars(ScalarsOp scalars, size_t group) {
  // What is of the model is in the first group's frame as in any.
  Frame local;
  local.outer = group == kModel ? &groups.front() : &groups[group];
  Shapes shapes;
  auto evaluate = [&](Operation *op, const Frame &frame) {
    return isBound() ? BoundEvaluator(frame, shapes, Format::F64, outcome.jumps)
                           .evaluate(op)
                     : Evaluator(frame, shapes, Format::F64).evaluate(op);
  };
  Block &body = scalars.getBody().front();
  for (Operation &op : body) {
    for (Value operand : op.getOperands())
      if (auto statistic = operand.getDefiningOp<StatisticOp>())
        if (Error error = computeStatistic(
                statistic,
                statistic.getScope() == Scope::Model ? kModel : group))
          return error;
    if (isa<YieldOp>(op))
      break;
    if (op.getNumResults() == 0) {
      if (Error error = applyEffect(&op, group, local))
        return error;
      continue;
    }
    if (auto call = dyn_cast<CallOp>(op)) {
      if (Error error = evaluateCall(call, local, evaluate))
        return error;
      continue;
    }
    Expected<Datum> datum = evaluate(&op, local);
    if (!datum)
      return datum.takeError();
    local.values[op.getResult(0)] = std::move(*datum);
  }
  for (auto [result, value] :
       llvm::zip(scalars.getResults(), scalars.getYield().getValues()))
    getFrame(group).values[result] = local.get(value);
  return Error::success();
}

bool ModelStep::isActive(size_t group) const {
  return llvm::any_of(request.tensors, [&](const TensorRequest &tensor) {
    return tensor.participates && (group == kModel || tensor.group == group);
  });
}

Error ModelStep::runRound(ArrayRef<ScalarsOp> round) {
  for (ScalarsOp scalars : round) {
    if (scalars.getScope() == Scope::Model) {
      if (Error error = runScalars(scalars, kModel))
        return error;
      continue;
    }
    for (size_t group = 0; group < groups.size(); ++group) {
      if (!isActive(group))
        continue;
      if (Error error = runScalars(scalars, group))
        return error;
    }
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// The outcome
//===----------------------------------------------------------------------===//

/// What was reported before, or NaN.
static double getReport(const std::map<std::string, double> &before,
                        const std::string &name) {
  auto found = before.find(name);
  return found == before.end() ? std::numeric_limits<double>::quiet_NaN()
                               : found->second;
}

/// An interval, and where a number is wanted its lower end.
static void setNumber(std::map<std::string, double> &numbers,
                      std::map<std::string, Interval> &bounds,
                      const std::string &name, Interval value) {
  numbers[name] = value.hasNumbers() ? value.low : value.getPoint();
  bounds.insert_or_assign(name, value);
}

void ModelStep::setReport(const std::string &name, size_t group,
                          Interval value) {
  if (group == kModel)
    setNumber(outcome.reports, outcome.reportBounds, name, value);
  else
    setNumber(outcome.groupReports[group], outcome.groupReportBounds[group],
              name, value);
}

void ModelStep::setScalar(const std::string &name, size_t group,
                          Interval value) {
  if (group == kModel)
    setNumber(outcome.scalars, outcome.scalarBounds, name, value);
  else
    setNumber(outcome.groupScalars[group], outcome.groupScalarBounds[group],
              name, value);
}

void ModelStep::prepareReports() {
  for (ScalarsOp scalars : source.getOps<ScalarsOp>())
    for (auto report : scalars.getBody().getOps<ReportOp>()) {
      std::string name = source.getName(report).str();
      if (scalars.getScope() == Scope::Model) {
        setReport(name, kModel, Interval::of(getReport(request.reports, name)));
        continue;
      }
      for (auto [index, group] : llvm::enumerate(request.groups))
        setReport(name, index, Interval::of(getReport(group.reports, name)));
    }
}

void ModelStep::updateScalars() {
  for (ScalarOp scalar : source.getOps<ScalarOp>()) {
    std::string name = source.getName(scalar).str();
    if (scalar.getScope() == Scope::Model)
      setScalar(name, kModel, getInterval(model.get(scalar.getResult())));
    else
      for (auto [index, group] : llvm::enumerate(groups))
        setScalar(name, index, getInterval(group.get(scalar.getResult())));
  }
  for (Update &update : updates)
    if (!outcome.skipped || update.op.getAlways())
      setScalar(source.getName(update.op.getScalarOp()).str(), update.group,
                update.value);
}

Error ModelStep::finishTensors() {
  for (auto [given, tensor] : llvm::zip(request.tensors, tensors)) {
    if (given.participates && !outcome.skipped) {
      Expected<Outcome> finished = tensor.finish();
      if (!finished)
        return finished.takeError();
      outcome.tensors.push_back(std::move(*finished));
      continue;
    }
    Outcome &unchanged = outcome.tensors.emplace_back();
    unchanged.param = given.param.tensor;
    for (const auto &[name, state] : given.states)
      unchanged.states[name] = state.tensor;
    if (!isBound())
      continue;
    unchanged.paramBounds = toBounds(given.param.tensor);
    for (const auto &[name, state] : given.states)
      unchanged.stateBounds[name] = toBounds(state.tensor);
  }
  return Error::success();
}

Expected<ModelOutcome> ModelStep::run() {
  if (Error error = bind())
    return error;
  outcome.groupScalars.resize(groups.size());
  outcome.groupScalarBounds.resize(groups.size());
  outcome.groupReports.resize(groups.size());
  outcome.groupReportBounds.resize(groups.size());
  prepareReports();
  Rounds rounds(source);
  for (ArrayRef<ScalarsOp> round : rounds.getRounds()) {
    if (outcome.skipped || !isActive(kModel))
      break;
    if (Error error = runRound(round))
      return error;
  }
  updateScalars();
  if (Error error = finishTensors())
    return error;
  return std::move(outcome);
}
