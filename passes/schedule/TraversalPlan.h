//===- TraversalPlan.h - which traversal does what --------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SCHEDULE_TRAVERSALPLAN_H
#define STEPC_PASSES_SCHEDULE_TRAVERSALPLAN_H

#include "passes/schedule/RuleAnalysis.h"

#include "llvm/ADT/SetVector.h"

#include <vector>

namespace mlir::step {

/// One traversal of the tensor.
struct Traversal {
  Time time;
  /// Where this condition holds, the traversal is left out; null: it never is.
  /// Before others of its time, but for one that trails.
  Value unless;
  /// Reductions whose partial results it leaves.
  SmallVector<ReductionOpInterface> reductions;
  /// Arguments (param, states of its dims) whose new values it writes.
  SmallVector<unsigned> stores;
  /// Values that it keeps in memory, for products.
  SmallVector<Value> keeps;

  // What follows from these:

  /// Whether it needs nothing of the traversal before it but what that one
  /// leaves of rows, so that both may go down the tensor together, a strip of
  /// rows by both before the next.
  bool isTrailing = false;

  /// Full values that it computes.
  llvm::SetVector<Value> computed;
  /// Arguments whose memory it reads.
  llvm::SetVector<unsigned> reads;
  /// The values that it reads so: an argument, or, where an earlier traversal
  /// has written it, the argument's new value.
  llvm::MapVector<Value, unsigned> leaves;
  /// Values of other domains that it uses, but constants; and Full ones that
  /// are in memory before it: a product's, and what another has kept.
  llvm::SetVector<Value> inputs;
};

/// Distributes a rule's Full values over the least number of traversals.
///
/// Values are not kept in memory of their own, but for operands of products:
/// what several traversals need is computed again from what they read, or read
/// back where it is the new value of a state, or kept, or a product's. When a
/// new value is written is chosen so that the traversals move the least bytes;
/// a later write keeps the old value for later traversals. Each reduction of a
/// Full value is of one traversal, that of its time; each stored argument is
/// written by one, at its time or later, and never by one that may be left out.
/// Of
///
///   %m1 = step.lerp %m, %g, %w : [n], [n], f64
///   %s  = step.sum %m1 : [n]
///   %p1 = step.sub %p, ... (of %m1 and %s)
///   step.return %p1, %m1
///
///   0.0: reads m, g; reduces %s; writes m
///   0.1: reads p, m; writes p             m is %m1 here: read back
class TraversalPlan {
public:
  TraversalPlan(RuleOp rule, RuleAnalysis &analysis)
      : rule(rule), analysis(analysis) {}

  void run();

  ArrayRef<Traversal> getTraversals() const { return traversals; }
  /// Whether a trailing traversal needs it: an operation on rows, or a
  /// reduction along rows of a traversal that it trails.
  bool isOfRowBlock(Operation *op) const { return rowBlockOps.contains(op); }
  /// Bytes that traversal `index` reads and writes for an element.
  int64_t getBytes(const Traversal &traversal) const;

  void print(raw_ostream &os, AsmState &state) const;

private:
  void findTraversals();
  size_t getIndex(Time time, Value unless) const;
  size_t findSure(size_t index);
  bool isInMemory(size_t index, Value value) const;
  bool distribute();
  bool read(size_t index, Value value, llvm::SetVector<unsigned> &conflicts);
  void collect(size_t index, Value value, llvm::SetVector<unsigned> &conflicts);
  int64_t getTotalBytes() const;
  void settle();
  bool improveWriter(unsigned argument);
  bool isReducedInRowBlock(ReductionOpInterface reduction, size_t head,
                           size_t index) const;
  bool isOfRows(Domain domain) const;
  bool isKnownInRowBlock(Value value, size_t head, size_t index,
                         llvm::SetVector<Operation *> &needed) const;
  bool canTrail(const Traversal &traversal, size_t head, size_t index,
                llvm::SetVector<Operation *> &needed) const;
  void bringForward(size_t head, size_t index);
  void findTrailing();

  RuleOp rule;
  RuleAnalysis &analysis;
  std::vector<Traversal> traversals;
  /// For each stored argument of the param's dims the index of the traversal
  /// that writes it.
  llvm::MapVector<unsigned, size_t> writers;
  llvm::SetVector<Operation *> rowBlockOps;
};

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_TRAVERSALPLAN_H
