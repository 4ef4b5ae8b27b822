//===- ColumnSums.h - sums along columns, of a thread -----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CUDA_COLUMNSUMS_H
#define STEPC_PASSES_LOWER_CUDA_COLUMNSUMS_H

#include "passes/lower/Tile.h"

namespace mlir::step {

/// The accumulators along columns of one phase. A thread has the same columns
/// in every row of a strip: the sums of a vector of columns are in its
/// registers, row after row, those of single columns in memory.
class ColumnSums {
public:
  ColumnSums(const Words &w, TraverseOp traverse, int64_t lanes);

  /// Whether accumulator `k` is one of them.
  bool has(unsigned k) const { return llvm::is_contained(alongColumn, k); }

  // In registers: one vector for each accumulator. `column` (an index) is the
  // first one of the thread's vector, `isThere` whether it has one.
  SmallVector<Value> begin(const TileRunArguments &in, Value column,
                           Value isThere) const;
  void add(unsigned k, Value value, SmallVectorImpl<Value> &vectors) const;
  void store(const TileRunArguments &in, Value column, Value isThere,
             ValueRange vectors) const;

  // In memory, of one column (an index).
  /// Whether sums are to be cleared before rows are added to them.
  bool clearsMemory() const { return !goesOn && !alongColumn.empty(); }
  void clear(const TileRunArguments &in, Value column) const;
  void add(const TileRunArguments &in, unsigned k, Value value,
           Value column) const;

private:
  Value load(const TileRunArguments &in, unsigned k, Value column,
             Value isThere) const;
  Combiner getCombiner(unsigned k) const { return accumulators[k].combiner; }

  const Words &w;
  SmallVector<Accumulator> accumulators;
  int64_t lanes;
  /// Whether sums go on from what is in memory.
  bool goesOn;
  /// Numbers of the accumulators.
  SmallVector<unsigned> alongColumn;
};

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_COLUMNSUMS_H
