//===- BlockTree.h - the fixed order of additions, by a block ---*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The tree of docs/statistics.md over partial results in memory. All threads of
// a block run what is emitted here, with the same values of all arguments; when
// it ends, each sees what the others wrote.
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CUDA_BLOCKTREE_H
#define STEPC_PASSES_LOWER_CUDA_BLOCKTREE_H

#include "passes/lower/Combiners.h"

namespace mlir::step {

/// Waits for all threads of the block; what they wrote before can be read.
void emitBarrier(const Words &w);

/// The numbers 0 to `count` - 1 (words), shared out over the block's threads.
void emitBlockLoop(const Words &w, Value count,
                   function_ref<void(Value)> emitBody);

/// `emitBody` by the block's first thread.
void emitByOneThread(const Words &w, function_ref<void()> emitBody);

/// Groups of partial results, f64 in memory. All values are words: group g has
/// `count` entries, `stride` f64 apart, from number g * `pitch` on after
/// `address`.
struct PartialGroups {
  Value address, groups, pitch, count, stride;
};

/// Combines the entries of each group in place, pairwise by number; the result
/// is the group's first. An entry is `width` (a word) f64 side by side.
void emitBlockPairwise(const Words &w, Combiner combiner,
                       const PartialGroups &in, Value width);

/// Combines the entries, one f64 each, of each group in place and in sequence
/// order; the result is the group's first.
void emitBlockSequence(const Words &w, Combiner combiner,
                       const PartialGroups &in);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_BLOCKTREE_H
