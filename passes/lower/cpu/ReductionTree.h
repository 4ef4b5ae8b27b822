//===- ReductionTree.h - the fixed order of additions -----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The tree of docs/statistics.md. A leaf of a row is summed in lanes (a vector
// of 16 f64 that phases carry along a row) and folded; leaves, and then rows,
// are combined here.
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_REDUCTIONTREE_H
#define STEPC_PASSES_LOWER_CPU_REDUCTIONTREE_H

#include "passes/lower/Combiners.h"

namespace mlir::step {

/// The 16 lanes made one: k and k + 8, k and k + 4, k and k + 2, k and k + 1.
Value emitFolded(const Words &w, Combiner combiner, Value lanes);

/// Combines in place, pairwise by number, `count` entries (an index) that lie
/// `stride` words (i64) apart from `address` on; the result is the first. Each
/// entry is a row of `width` (an index) f64.
void emitPairwise(const Words &w, Combiner combiner, Value address, Value count,
                  Value stride, Value width);

/// The same of `count` f64 that lie one after the other: what is combined moves
/// together. The result is the first.
void emitDense(const Words &w, Combiner combiner, Value address, Value count);

/// Combines `count` f64 that lie `stride` words apart, in sequence order: in
/// leaves of 64, each from the neutral value on, and these pairwise. The result
/// is the first.
void emitSequence(const Words &w, Combiner combiner, Value address, Value count,
                  Value stride);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_REDUCTIONTREE_H
