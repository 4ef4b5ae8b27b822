//===- Rounds.cpp - which segment of a step a scalar belongs to -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Rounds.h"

using namespace mlir;
using namespace mlir::step;

static bool maySkip(ScalarsOp op) {
  return !op.getBody().getOps<SkipIfOp>().empty();
}

Rounds::Rounds(OptimizerOp optimizer, bool sharded)
    : optimizer(optimizer), sharded(sharded),
      scalarsOps(optimizer.getBody().getOps<ScalarsOp>()) {
  noted = llvm::any_of(scalarsOps,
                       [](ScalarsOp op) { return op->hasAttr(kWholeRound); });
  if (sharded && !noted && llvm::any_of(scalarsOps, maySkip))
    whole.reset(new Rounds(optimizer, false));
}

int64_t Rounds::getSegment(Value value) {
  if (auto found = segments.find(value); found != segments.end())
    return found->second;
  int64_t segment = 0;
  Operation *op = value.getDefiningOp();
  if (auto scalars = dyn_cast_or_null<ScalarsOp>(op))
    segment = getRound(scalars) + 1;
  else if (op)
    for (Value operand : op->getOperands())
      segment = std::max(segment, getSegment(operand));
  auto reduction = dyn_cast_or_null<ReductionOpInterface>(op);
  if (sharded && reduction && reduction.getAcrossAttr())
    ++segment;
  segments[value] = segment;
  return segment;
}

int64_t Rounds::getSegment(StatisticOp statistic) {
  auto found = statistics.find(statistic);
  if (found != statistics.end())
    return found->second;
  int64_t segment = 0;
  optimizer.walk([&](ContributeOp op) {
    if (op.getStatisticOp() == statistic)
      segment = std::max(segment, getSegment(op.getValue()));
  });
  statistics[statistic] = segment;
  return segment;
}

int64_t Rounds::getRound(ScalarsOp op) {
  auto found = rounds.find(op);
  if (found != rounds.end())
    return found->second;
  int64_t round = computeRound(op);
  rounds[op] = round;
  return round;
}

std::optional<int64_t> Rounds::getKeptRound(ScalarsOp op) {
  if (auto round = op->getAttrOfType<IntegerAttr>(kWholeRound))
    return round.getInt();
  return whole ? std::optional(whole->getRound(op)) : std::nullopt;
}

/// Which calls still run in a step that is skipped is not to depend on the
/// layout: what is of one round of whole tensors stays together, and behind
/// the rounds before it, however long ranks need to have its statistics.
int64_t Rounds::computeRound(ScalarsOp op) {
  std::optional<int64_t> own = getKeptRound(op);
  if (!own)
    return getNeeded(op);
  int64_t round = 0;
  for (ScalarsOp other : scalarsOps) {
    std::optional<int64_t> kept = getKeptRound(other);
    if (!kept)
      continue;
    int64_t distance = *own - *kept;
    if (distance == 0)
      round = std::max(round, getNeeded(other));
    else if (distance > 0)
      round = std::max(round, getRound(other) + 1);
  }
  return round;
}

/// The first round in which the operation can run.
int64_t Rounds::getNeeded(ScalarsOp op) {
  if (auto found = needed.find(op); found != needed.end())
    return found->second;
  int64_t round = 0;
  op.getBody().walk([&](Operation *inner) {
    for (Value operand : inner->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (auto statistic = dyn_cast_or_null<StatisticOp>(source))
        round = std::max(round, getSegment(statistic));
      else if (auto other = dyn_cast_or_null<ScalarsOp>(source))
        round = std::max(round, isBeside(other, op) ? getNeeded(other)
                                                    : getRound(other));
    }
  });
  needed[op] = round;
  return round;
}

/// Whether two run together where tensors are whole.
bool Rounds::isBeside(ScalarsOp a, ScalarsOp b) {
  std::optional<int64_t> round = getKeptRound(a);
  return round && round == getKeptRound(b);
}

int64_t Rounds::getFirstSureSegment() {
  int64_t segment = 0;
  for (ScalarsOp op : scalarsOps)
    if (maySkip(op))
      segment = std::max(segment, getRound(op) + 1);
  return segment;
}

int64_t Rounds::getNumSegments() {
  int64_t segments = 1;
  for (ScalarsOp op : scalarsOps)
    segments = std::max(segments, getRound(op) + 2);
  optimizer.walk([&](ReductionOpInterface reduction) {
    segments = std::max(segments, getSegment(reduction->getResult(0)) + 1);
  });
  return segments;
}

SmallVector<Value> mlir::step::getScalarInputs(OptimizerOp optimizer) {
  SmallVector<Value> inputs;
  for (auto hyper : optimizer.getBody().getOps<HyperOp>())
    inputs.push_back(hyper.getResult());
  for (auto scalars : optimizer.getBody().getOps<ScalarsOp>())
    inputs.append(scalars.getResults().begin(), scalars.getResults().end());
  for (auto scalar : optimizer.getBody().getOps<ScalarOp>())
    inputs.push_back(scalar.getResult());
  return inputs;
}
