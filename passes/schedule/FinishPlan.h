//===- FinishPlan.h - what runs once for a tensor ----------------*- C++
//-*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SCHEDULE_FINISHPLAN_H
#define STEPC_PASSES_SCHEDULE_FINISHPLAN_H

#include "passes/schedule/TraversalPlan.h"

#include <map>
#include <vector>

namespace mlir::step {

/// Where in a program something small happens: before the traversal of that
/// time, in the order of the indices. At index -1 stands what a trailing
/// traversal needs of its rows; the rest comes behind the last that trails.
inline constexpr int64_t kRowBlock = -1;

struct Position {
  Time time;
  int64_t index = 0;

  bool operator<(const Position &other) const {
    return time < other.time || (time == other.time && index < other.index);
  }
  bool operator==(const Position &other) const {
    return time == other.time && index == other.index;
  }
};

/// What is done at one position in one domain: a small phase, or, of the domain
/// Tensor, scalars of the tensor.
struct SmallStep {
  Position position;
  Domain domain;
  /// In the order of the rule; reductions of the step's values among them.
  SmallVector<Operation *> ops;
  /// States whose new values are written.
  SmallVector<unsigned> stores;
  /// Scalars that are not of the tensor but become slots of it.
  SmallVector<Value> copies;
  /// Slots that become others, for the next step.
  SmallVector<CarryOp> carries;
};

/// Orders all that is not Full and not of a cohort: vectors of rows, columns
/// and items, and scalars of the tensor.
///
/// Values that another step or a traversal needs are kept: vectors in temps,
/// scalars in slots. They are few beside the tensor's elements.
class FinishPlan {
public:
  FinishPlan(RuleOp rule, RuleAnalysis &analysis, const TraversalPlan &plan)
      : rule(rule), analysis(analysis), traversals(plan) {}

  void run();

  /// In the order in which they run.
  ArrayRef<SmallStep> getSteps() const { return steps; }
  /// Whether the operation's result is of the step alone: it is computed there,
  /// and no reduction.
  bool isOfStep(Operation *op, const SmallStep &step) const;
  /// Vectors that are kept; the value says whether from one segment to another.
  const llvm::MapVector<Value, bool> &getTemps() const { return temps; }
  /// Scalars of the tensor that are kept, in the order of their slots.
  const llvm::SetVector<Value> &getSlots() const { return slots; }

private:
  void placeOps();
  void placeStores();
  void placeContributions();
  void placeConditions();
  void placeCarried();
  void findKept();
  void keep(Value value, int64_t usedIn);
  Domain getStepDomain(Operation *op) const;
  Position getAvailable(Value value, Domain user) const;
  Position findStorePosition(unsigned argument);
  SmallStep &getStep(Position position, Domain domain);

  RuleOp rule;
  RuleAnalysis &analysis;
  const TraversalPlan &traversals;
  DenseMap<Operation *, Position> positions;
  std::vector<SmallStep> steps;
  /// While steps are made, in which place each is.
  std::map<std::pair<Position, Domain>, size_t> stepNumbers;
  llvm::MapVector<Value, bool> temps;
  llvm::SetVector<Value> slots;
};

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_FINISHPLAN_H
