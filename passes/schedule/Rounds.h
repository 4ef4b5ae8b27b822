//===- Rounds.h - which segment of a step a scalar belongs to ---*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SCHEDULE_ROUNDS_H
#define STEPC_PASSES_SCHEDULE_ROUNDS_H

#include "dialect/Step.h"

#include "llvm/ADT/DenseMap.h"

#include <memory>

namespace mlir::step {

/// Attribute of a `step.scalars`, an integer: the round of whole tensors that
/// it had before a pass that gave sums rounds of their own. Those that the pass
/// has added have none.
inline constexpr llvm::StringLiteral kWholeRound = "whole_round";

/// The segments and rounds of one optimizer (docs/statistics.md). Segment 0 of
/// a step needs no result of a round; round r runs when segment r is done;
/// segment r + 1 may use its results. What crosses ranks between two segments
/// is of the round too. They are those of the optimizer as it was when this was
/// made.
///
/// A number depends on others, and never on itself, which the verifier has made
/// sure of. All begin at 0 and grow until none is less than what the others
/// ask for: after as many sweeps over the rules as a chain of statistics is
/// long, whatever the order in which they are declared.
class Rounds {
public:
  explicit Rounds(OptimizerOp optimizer) : Rounds(optimizer, true) {}

  /// The first segment in which the value can be computed.
  int64_t getSegment(Value value) const { return segments.lookup(value); }
  /// The round in which the operation runs.
  int64_t getRound(ScalarsOp op) const { return rounds.lookup(op); }
  /// The segment after which all contributions to the statistic are there.
  int64_t getSegment(StatisticOp statistic) const {
    return statistics.lookup(statistic);
  }
  /// The first segment in which it is known whether the step is skipped; 0
  /// where no step ever is.
  int64_t getFirstSureSegment() const { return firstSure; }
  /// How many segments a step has.
  int64_t getNumSegments() const { return numSegments; }

  ArrayRef<ScalarsOp> getScalarsOps() const { return scalarsOps; }

private:
  Rounds(OptimizerOp optimizer, bool sharded);
  bool sweep();
  int64_t computeSegment(Operation *op) const;
  int64_t computeRound(ScalarsOp op) const;
  int64_t computeNeeded(ScalarsOp op) const;
  bool isBeside(ScalarsOp a, ScalarsOp b) const;
  std::optional<int64_t> getKeptRound(ScalarsOp op) const;

  OptimizerOp optimizer;
  bool sharded;
  /// Where a step may be skipped, rounds of whole tensors, whose order is kept:
  /// as they are, or as a pass has noted them.
  std::unique_ptr<Rounds> whole;
  bool noted = false;
  SmallVector<ScalarsOp> scalarsOps;
  DenseMap<Value, int64_t> segments;
  /// Of a `step.scalars` the round, and the first in which it can run.
  DenseMap<Operation *, int64_t> rounds, needed;
  DenseMap<Operation *, int64_t> statistics;
  int64_t firstSure = 0, numSegments = 1;
};

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_ROUNDS_H
