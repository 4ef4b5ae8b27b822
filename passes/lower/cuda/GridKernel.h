//===- GridKernel.h - entry points on a device ------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Entry points are thin: a loop over a list that is spread over the blocks, or
// the threads, of a grid of any size, around a call of a function that does the
// work (docs/cuda.md).
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CUDA_GRIDKERNEL_H
#define STEPC_PASSES_LOWER_CUDA_GRIDKERNEL_H

#include "passes/lower/ElementRow.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::step {

/// Threads of a block, of every kernel.
inline constexpr int64_t kBlockThreads = STEPC_BLOCK_THREADS;

/// The number of this thread in its block, an index.
Value emitThread(const Words &w);

/// Makes an entry point with `words` i64 arguments; `emitBody` fills it, but
/// for the return.
gpu::GPUFuncOp emitKernel(const Words &w, StringRef name, int64_t words,
                          function_ref<void(ValueRange)> emitBody);

/// Says how many blocks of a kernel are to have room on a multiprocessor. An
/// assembler that is not told keeps values in local memory to make room for
/// more.
void requireBlocks(gpu::GPUFuncOp kernel, int32_t blocks);

/// `emitBody` by one thread of the grid.
void emitOnce(const Words &w, function_ref<void()> emitBody);

/// The number of this thread in the grid, and how many there are, as indices.
std::pair<Value, Value> emitGridThread(const Words &w);

/// The numbers `begin` to `end` - 1 (indices), shared out over the blocks.
void emitGridLoop(const Words &w, Value begin, Value end,
                  function_ref<void(Value)> emitBody);

/// The words `begin`, `end` and `skip` of a kernel as indices of the entries
/// that it works on: none where the word at the address `skip` is not 0.
std::pair<Value, Value> emitRange(const Words &w, ValueRange range);

/// Makes the entry point `name(table, rowWords, chunks, workspace, begin, end,
/// skip)`: `emitEntry` for the entries [begin, end) of the chunk list, a block
/// of threads for each. Where an entry has several parts, each is a block's,
/// and the number is that of the entry times `parts` plus that of the part.
gpu::GPUFuncOp
emitChunkKernel(const Words &w, StringRef name,
                function_ref<void(const CallWords &, Value number)> emitEntry,
                int64_t parts = 1);

/// The same with all blocks working for each entry. A word goes from entry to
/// entry: 0 at first, then what `emitEntry` makes of it.
gpu::GPUFuncOp emitSpreadKernel(
    const Words &w, StringRef name,
    function_ref<Value(const CallWords &, Value number, Value word)> emitEntry);

/// Makes the entry point `name(list, begin, end, skip)`: `emitEntry` for the
/// entries [begin, end) of a list of `words` words each, a block of threads for
/// each.
gpu::GPUFuncOp
emitBlockListKernel(const Words &w, StringRef name, int64_t words,
                    function_ref<void(ArrayRef<Value>)> emitEntry);

/// The last of `entries` entries of a list whose first tile, a word of each, is
/// not behind `tile` (all are words).
Value emitFindEntry(const Words &w, Value list, Value entries, Value tile,
                    int64_t entryWords, int64_t tileWord);

/// The loop of a thread of the grid over the entries of a list, of which
/// `range` has the words `begin`, `end` and `skip`.
void emitThreadLoop(const Words &w, ValueRange range,
                    function_ref<void(Value)> emitBody);

/// Makes the entry point `name(list, begin, end, skip)` around a function of
/// words: a thread for each entry [begin, end) of a list of the function's
/// arguments. Where the function has a result, an i64, the address at which it
/// is stored comes next, and the address and count of words of which one has to
/// be other than 0; else it is not called, and 0 is stored.
void emitListKernel(const Words &w, StringRef name, func::FuncOp function);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_GRIDKERNEL_H
