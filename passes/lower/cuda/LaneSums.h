//===- LaneSums.h - sums along rows in shared memory ------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CUDA_LANESUMS_H
#define STEPC_PASSES_LOWER_CUDA_LANESUMS_H

#include "passes/lower/Tile.h"

namespace mlir::step {

/// The accumulators along rows of one phase. A block stages their values of
/// some rows of a strip in shared memory; then each of its threads adds one
/// lane of a leaf, in the order of docs/statistics.md, and threads side by side
/// fold the 16 lanes by shuffles.
class LaneSums {
public:
  /// Rows that are staged at a time, of strips of `width` columns; 0 where not
  /// one fits.
  static int64_t countRows(PhaseOp phase, int64_t width);

  LaneSums(const Words &w, PhaseOp phase, int64_t width);

  /// Whether there is none.
  bool isEmpty() const { return alongRow.empty(); }
  int64_t getRows() const { return rows; }

  /// Stages an element or a vector of accumulator `k` in row `row` of those
  /// staged, at `column` of the strip (indices).
  void stage(unsigned k, Value value, Value row, Value column);

  /// Leaves the sums of rows `first` to `end` (indices) of the strip that
  /// begins at column `begin` (an index). Nothing may be staged before by
  /// threads that have not come here, nor after by those that have left.
  void emit(const TileRunArguments &in, Value first, Value end, Value begin);

private:
  void emitAccumulator(unsigned place, const TileRunArguments &in, Value first,
                       Value end, Value begin);
  Value emitLane(unsigned place, Value row, Value leaf, Value lane,
                 Value count);
  Value emitFolded(Combiner combiner, Value value) const;
  Value getStaged() const;
  Value getPlace(unsigned place, Value row, Value column) const;

  const Words &w;
  PhaseOp phase;
  int64_t width, rows = 0;
  Type type; // of what is staged
  /// Numbers of the accumulators.
  SmallVector<unsigned> alongRow;
};

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_LANESUMS_H
