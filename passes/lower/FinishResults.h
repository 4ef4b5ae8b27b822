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
  /// What the operation results in: a buffer, a share or a number.
  Value result;
  /// A word to divide by, or null.
  Value divisor;
};

Extents getExtents(const Words &w, const TileRow &row, Space space);

/// What is reduced, and how far.
Space getSpace(CombineOp combine);
Level getLevel(CombineOp combine);
Space getSpace(ReceiveOp receive);
Level getLevel(ReceiveOp receive);

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

/// Writes element `index` (a word) of the buffer or share, or the number's
/// slot. A buffer's is rounded to its type; a share is not.
void storeResult(const Words &w, const TileRow &row, const Destination &to,
                 Value sum, Value index);

/// Computes scalars of one tensor, one behind the other, from slots into slots;
/// what is carried, or becomes the tensor's, too.
void emitTensorScalars(const Words &w, const TileRow &row,
                       ArrayRef<Operation *> ops);

/// Whether the operation of a finish is one of those.
bool isScalarOfFinish(Operation *op);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_FINISHRESULTS_H
