//===- FinishResults.h - what a finish combines, where it goes --*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_FINISHRESULTS_H
#define STEPC_PASSES_LOWER_FINISHRESULTS_H

#include "passes/lower/TileRow.h"

namespace mlir::step {

/// What is reduced, and how far.
ReductionDims getReductionDims(CombineOp combine);
ReductionDims getReductionDims(ReceiveOp receive);

/// Where the results of a combine or receive go, and of how many elements each
/// is the sum.
struct Destination {
  Combiner combiner;
  /// What the operation results in: a buffer, a share or a number.
  Value result;
  /// A word to divide by, or null.
  Value divisor;
};

Destination getDestination(const Words &w, const TileRow &row,
                           CombineOp combine);
Destination getDestination(const Words &w, const TileRow &row,
                           ReceiveOp receive);

/// Element `index` of what ranks have reduced, or of what was combined of
/// several tensors.
Value loadReceived(const Words &w, const TileRow &row, ReceiveOp receive,
                   Value index);

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
