//===- FinishResults.h - what a finish combines, where it goes -----*- C++
//-*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_FINISHRESULTS_H
#define STEPC_PASSES_LOWER_FINISHRESULTS_H

#include "passes/lower/TileRow.h"

namespace mlir::step {

/// The extents of what a phase of a space traverses, on this rank and of the
/// whole tensor. All values are words.
struct Extents {
  Value items, rows, columns; // B', N', M'
  Value leaves;               // ceil(M' / 1024)
  Value wholeItems, wholeRows, wholeColumns;
};

/// Where the results of a combine or receive go, and of how many elements each
/// is the sum.
struct Destination {
  Combiner combiner;
  std::optional<StringRef> temp, exchange;
  std::optional<int64_t> slot;
  /// A word to divide by, or null.
  Value divisor;
};

Extents getExtents(const Words &w, const TileRow &row, Space space);

Destination getDestination(const Words &w, CombineOp combine,
                           const Extents &in);
Destination getDestination(const Words &w, ReceiveOp receive,
                           const Extents &in);

/// Element `index` of what ranks have reduced, or of what was combined of
/// several tensors.
Value loadReceived(const Words &w, const TileRow &row, ReceiveOp receive,
                   Value index);

/// A word: how many results there are.
Value countResults(const Words &w, Level level, const Extents &in);

/// Writes element `index` (a word) of the temp or exchange, or the slot. A
/// temp's is rounded to its type; what is exchanged is not.
void storeResult(const Words &w, ProgramOp program, const TileRow &row,
                 const Destination &to, Value sum, Value index);

/// Computes the scalars of one tensor from its slots, into them.
void emitTensorScalars(const Words &w, const TileRow &row,
                       TensorScalarsOp scalars);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_FINISHRESULTS_H
