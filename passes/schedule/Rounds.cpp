//===- Rounds.cpp - which segment of a step a scalar belongs to -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Rounds.h"

#include <utility>

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
  // A sweep sets at least one more round of those that depend on others.
  for (size_t sweeps = 0; sweeps <= scalarsOps.size() && sweep(); ++sweeps)
    ;
  for (ScalarsOp op : scalarsOps) {
    numSegments = std::max(numSegments, getRound(op) + 2);
    if (maySkip(op))
      firstSure = std::max(firstSure, getRound(op) + 1);
  }
  optimizer.walk([&](ReductionOpInterface reduction) {
    numSegments =
        std::max(numSegments, getSegment(reduction->getResult(0)) + 1);
  });
}

/// Raises all numbers to what the others ask for; true where a round was
/// raised, on which rules depend.
bool Rounds::sweep() {
  for (ScalarsOp op : scalarsOps)
    for (Value result : op.getResults())
      segments[result] = getRound(op) + 1;
  for (auto rule : optimizer.getBody().getOps<RuleOp>())
    for (Operation &op : rule.getBody().front()) {
      int64_t segment = computeSegment(&op);
      for (Value result : op.getResults())
        segments[result] = segment;
      if (auto contribute = dyn_cast<ContributeOp>(op)) {
        int64_t &last = statistics[contribute.getStatisticOp()];
        last = std::max(last, segment);
      }
    }
  bool raised = false, changed = true;
  // Among themselves they settle first: one may be asked for by others before
  // it, and those of one round all ask for what one of them does.
  for (size_t turn = 0; turn <= 2 * scalarsOps.size() && changed; ++turn) {
    changed = false;
    for (ScalarsOp op : scalarsOps) {
      int64_t first = computeNeeded(op);
      changed |= std::exchange(needed[op], first) != first;
      int64_t round = computeRound(op);
      changed |= std::exchange(rounds[op], round) != round;
    }
    raised |= changed;
  }
  return raised;
}

/// Of an operation of a rule.
int64_t Rounds::computeSegment(Operation *op) const {
  int64_t segment = 0;
  for (Value operand : op->getOperands())
    segment = std::max(segment, getSegment(operand));
  auto reduction = dyn_cast<ReductionOpInterface>(op);
  if (sharded && reduction && reduction.getAcrossAttr())
    ++segment;
  return segment;
}

std::optional<int64_t> Rounds::getKeptRound(ScalarsOp op) const {
  if (auto round = op->getAttrOfType<IntegerAttr>(kWholeRound))
    return round.getInt();
  return whole ? std::optional(whole->getRound(op)) : std::nullopt;
}

/// Which calls still run in a step that is skipped is not to depend on the
/// layout: what is of one round of whole tensors stays together, and behind
/// the rounds before it, however long ranks need to have its statistics.
int64_t Rounds::computeRound(ScalarsOp op) const {
  std::optional<int64_t> own = getKeptRound(op);
  if (!own)
    return needed.lookup(op);
  int64_t round = 0;
  for (ScalarsOp other : scalarsOps) {
    std::optional<int64_t> kept = getKeptRound(other);
    if (!kept)
      continue;
    int64_t distance = *own - *kept;
    if (distance == 0)
      round = std::max(round, needed.lookup(other));
    else if (distance > 0)
      round = std::max(round, getRound(other) + 1);
  }
  return round;
}

/// The first round in which the operation can run.
int64_t Rounds::computeNeeded(ScalarsOp op) const {
  int64_t round = 0;
  op.getBody().walk([&](Operation *inner) {
    for (Value operand : inner->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (auto statistic = dyn_cast_or_null<StatisticOp>(source))
        round = std::max(round, getSegment(statistic));
      else if (auto other = dyn_cast_or_null<ScalarsOp>(source))
        round = std::max(round, isBeside(other, op) ? needed.lookup(other)
                                                    : getRound(other));
    }
  });
  return round;
}

/// Whether two run together where tensors are whole.
bool Rounds::isBeside(ScalarsOp a, ScalarsOp b) const {
  std::optional<int64_t> round = getKeptRound(a);
  return round && round == getKeptRound(b);
}
