//===- LaneSums.h - sums along rows in shared memory ------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CUDA_LANESUMS_H
#define STEPC_PASSES_LOWER_CUDA_LANESUMS_H

#include "passes/lower/Tile.h"

#include <optional>

namespace mlir::step {

/// The accumulators along rows of one phase. A block stages their values of
/// some rows of a strip in shared memory; then each of its threads adds one
/// lane of a leaf, in the order of docs/statistics.md, and threads side by side
/// fold the 16 lanes by shuffles. Where not even one row fits, a part of its
/// columns is staged at a time, and lanes of leaves that are not at their end
/// wait in shared memory.
class LaneSums {
public:
  /// What is staged at a time: rows, and columns of each.
  struct Staging {
    int64_t rows, columns;
  };
  /// Of strips of `width` columns; nothing where no part of a row fits.
  static std::optional<Staging> getStaging(TraverseOp traverse, int64_t width);

  /// The phase has a staging.
  LaneSums(const Words &w, TraverseOp traverse, int64_t width);

  /// Whether there is none.
  bool isEmpty() const { return alongRow.empty(); }
  int64_t getRows() const { return staging.rows; }
  int64_t getColumns() const { return staging.columns; }
  /// Whether parts of a row are staged. They begin at multiples of as many
  /// columns from a leaf's begin on, one follows the other.
  bool isSplit() const { return staging.columns < width; }

  /// Stages an element or a vector of accumulator `k` in row `row` of those
  /// staged, at `column` of the strip or the part (indices).
  void stage(unsigned k, Value value, Value row, Value column);

  /// Leaves the sums of rows `first` to `end` (indices) of the strip, or the
  /// part, that begins at column `begin` (an index). Nothing may be staged
  /// before by threads that have not come here, nor after by those that have
  /// left.
  void emit(const TileRunArguments &in, Value first, Value end, Value begin);

private:
  /// Accumulators of one kind. Their lanes are added by one loop, by threads
  /// from number `firstThread` on.
  struct Group {
    Combiner combiner;
    unsigned first, count; // among the staged ones
    int64_t firstThread;
  };
  /// A lane that a thread adds. Indices.
  struct Lane {
    Value place, row, leaf, number, firstColumn, count;
  };

  int64_t countLanes() const;
  int64_t countThreads(const Group &group) const;
  int64_t countThreads() const;
  void emitGroup(const Group &group, const TileRunArguments &in, Value first,
                 Value end, Value begin);
  Lane locateLane(const Group &group, const TileRunArguments &in, Value rows,
                  Value begin, Value number) const;
  Value emitLane(const Group &group, const Lane &lane, Value sum);
  void emitWaiting(const Group &group, const TileRunArguments &in, Value first,
                   const Lane &lane, Value own);
  void emitLeaf(const Group &group, const TileRunArguments &in, Value first,
                const Lane &lane, Value sum);
  Value emitFolded(Combiner combiner, Value value) const;
  bool leavesWait() const;
  Combiner getCombiner(unsigned k) const { return accumulators[k].combiner; }
  Value getMemory(StringRef name, int64_t count, Type element) const;
  Value getStaged() const;
  Value getWaiting() const;
  Value getPlace(Value place, Value row, Value column) const;

  const Words &w;
  SmallVector<Accumulator> accumulators;
  int64_t width;
  Staging staging;
  Type type; // of what is staged
  /// Numbers of the accumulators, in the order in which they are staged: group
  /// by group.
  SmallVector<unsigned> alongRow;
  SmallVector<Group> groups;
};

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_LANESUMS_H
