//===- FinishPlan.h - what runs once for a tensor ---------------*- C++ -*-===//
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
/// Tensor, scalars of the tensor, or of Matrix one product.
struct SmallStep {
  Position position;
  Domain domain;
  /// In the order of the rule; reductions of the step's values among them.
  SmallVector<Operation *> ops;
  /// States whose new values are written.
  SmallVector<unsigned> stores;
  /// Scalars that become others, for the next step.
  SmallVector<CarryOp> carries;
};

/// Orders all that is not Full and not of a cohort: vectors of rows, columns
/// and items, and scalars of the tensor.
///
/// Vectors that another step or a traversal needs get memory. They are small
/// beside the tensor. A step uses nothing of a step behind it; an old state is
/// written when nobody needs it any more. What nobody needs before the next
/// step of its vectors waits for it (joinSteps). Of
///
///   %r  = step.mean %gg over [m] : [n, m]              reduced in 0.0
///   %r1 = step.lerp %state, %r, %w : [n, 1], [n, 1], f64
///   %s  = step.mean %r1 over [n] : [n, 1]
///   %f  = step.div %r1, %s : [n, 1], [1, 1]
///
///   before 0.1, 0: %r1, %s; writes state
///   before 0.1, 1: %f                                  %s is whole then
///
/// and of
///
///   %s  = step.mean %r over [n] : [n, 1]
///   %c1 = step.add %state, %c : [1, m]
///   %k  = step.sqrt %s : [1, 1]
///   %d  = step.div %k, %c1 : [1, 1], [1, m]
///
///   before 0.1, 0: %s
///   before 0.1, 2: %c1, %k, %d; writes state           %k once for each row
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
  /// Vectors that get memory.
  const llvm::SetVector<Value> &getTemps() const { return temps; }
  /// Whether there are scalars of the tensor that others ask for.
  bool hasScalars() const { return !scalars.empty(); }

  void print(raw_ostream &os, AsmState &state) const;

private:
  void placeOps();
  void joinSteps(ArrayRef<Operation *> placed);
  using StepKey = std::pair<Position, Domain>;
  bool checkUsers(ArrayRef<Operation *> ops, const StepKey &step,
                  function_ref<bool(Operation *, const StepKey *)> check) const;
  bool canWait(ArrayRef<Operation *> ops, const StepKey &step,
               const StepKey &later) const;
  std::optional<StepKey> findOnlyUser(ArrayRef<Operation *> ops,
                                      const StepKey &step) const;
  Domain getPlace(Operation *op) const;
  void placeStores();
  void placeCarried();
  void findAskedFor();
  void findKept();
  void keep(Value value);
  Position behindTrain(Position position) const;
  Position getAvailable(Value value, Domain user) const;
  Position findStorePosition(unsigned argument);
  SmallStep &getStep(Position position, Domain domain);

  RuleOp rule;
  RuleAnalysis &analysis;
  const TraversalPlan &traversals;
  DenseMap<Operation *, Position> positions;
  /// What is done in a step of more dims than its own.
  DenseMap<Operation *, Domain> joined;
  std::vector<SmallStep> steps;
  /// While steps are made, in which place each is.
  std::map<StepKey, size_t> stepNumbers;
  llvm::SetVector<Value> temps, scalars;
};

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_FINISHPLAN_H
