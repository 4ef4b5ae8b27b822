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
#include "passes/lower/Finish.h"

namespace mlir::step {

/// Waits for all threads of the block; what they wrote before can be read.
void emitBarrier(const Words &w);

/// The numbers 0 to `count` - 1 (words), shared out over the block's threads.
void emitBlockLoop(const Words &w, Value count,
                   function_ref<void(Value)> emitBody);

/// `emitBody` by the block's first thread.
void emitByOneThread(const Words &w, function_ref<void()> emitBody);

/// FinishPolicy's functions, by a block. The width is a word.
void emitBlockPairwise(const Words &w, Combiner combiner, const Entries &in,
                       Value width);
void emitBlockSequence(const Words &w, Combiner combiner, const Entries &in);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_BLOCKTREE_H
