//===- Finish.h - what runs once for a tensor -------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_FINISH_H
#define STEPC_PASSES_LOWER_FINISH_H

#include "passes/lower/FinishResults.h"
#include "passes/lower/Places.h"
#include "passes/lower/Products.h"
#include "passes/lower/Tile.h"

namespace mlir::step {

/// f64 that are combined: in each of the groups `count` entries, `stride` f64
/// apart, from the group's place after `address` on. All values are words.
struct Entries {
  Value address;
  Places groups;
  Value count, stride;
};

/// Who runs a finish: a worker, or the threads of a block. All of them run what
/// is emitted, with the same values.
class FinishPolicy {
public:
  explicit FinishPolicy(const Words &w) : w(w) {}
  virtual ~FinishPolicy() = default;

  /// `emitBody` for the number of each place and its offset, shared out.
  virtual void
  forEach(const Places &places,
          function_ref<void(Value number, Value offset)> emitBody) const = 0;
  /// What one alone does.
  virtual void byOne(function_ref<void()> emitBody) const = 0;
  /// All see what was written before.
  virtual void wait() const = 0;

  /// Combines the entries of each group pairwise by number into its first, and
  /// waits. An entry is `width` f64 side by side; null: one, and the entries
  /// lie side by side.
  virtual void foldPairwise(Combiner combiner, const Entries &entries,
                            Value width) const = 0;
  /// The same in sequence order, of entries of one f64.
  virtual void foldSequence(Combiner combiner,
                            const Entries &entries) const = 0;

  /// Multiplies two matrices.
  virtual void multiply(const Product &product) const = 0;
  /// Calls a routine of the runtime.
  virtual void call(const RoutineCall &routine) const = 0;

  /// Calls the run function of a traversal of vectors.
  virtual void runVectors(const TileRow &row, TraverseOp traverse,
                          func::FuncOp run) const = 0;

protected:
  const Words &w;
};

/// The arguments with which item number `item` of a traversal of vectors is a
/// single row: items are those of all its dims but the innermost.
TileRunArguments getVectorArguments(const Words &w, const TileRow &row,
                                    TraverseOp traverse, Value item);

/// How many items there are.
Value countItems(const TileRow &row, TraverseOp traverse);

/// Emits the operations of a finish, for one row of the table.
class FinishEmitter {
public:
  FinishEmitter(const Words &w, const TileRow &row, const FinishPolicy &policy)
      : w(w), row(row), policy(policy) {}

  /// `runs` has the run functions of traversals of vectors.
  void emit(ArrayRef<Operation *> entries,
            const DenseMap<Operation *, func::FuncOp> &runs);

  /// Of a reduction along rows: `rows` rows from `firstRow` on, whose leaves
  /// begin at `address`.
  void combineRows(const Destination &to, Value address, Value firstRow,
                   Value rows);

private:
  void emitCombine(CombineOp combine);
  void emitReceive(ReceiveOp receive);
  void combine(CombineOp combine, const Destination &to);
  void combineWhole(const ReductionDims &in, const Destination &to,
                    Value address);
  void combineRange(const ReductionDims &in, const Destination &to,
                    Value address);
  void combineRangeColumns(const Destination &to, Value address);
  void combineRangeItems(const Destination &to, Value address);
  void forEachItems(function_ref<void(Value, Value)> emitBody);
  void foldLeaves(const Destination &to, Value address, const Places &rows);
  void clearUntouched(const ReductionDims &in, const Destination &to,
                      Value address, Value count);
  void storeNeutral(const ReductionDims &in, const Destination &to);
  void storeFirst(const Destination &to, Value address, const Places &places,
                  Value firstIndex = Value());

  const Words &w;
  const TileRow &row;
  const FinishPolicy &policy;
};

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_FINISH_H
