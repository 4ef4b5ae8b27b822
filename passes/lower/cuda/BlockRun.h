//===- BlockRun.h - a phase on rows of elements, by a block -----*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CUDA_BLOCKRUN_H
#define STEPC_PASSES_LOWER_CUDA_BLOCKRUN_H

#include "passes/lower/Tile.h"

namespace mlir::step {

/// Columns that a block handles at a time: a multiple of a leaf's.
int64_t getStripColumns(TraverseOp traverse);

/// Whether the phase's sums along rows fit in shared memory.
bool fitsSharedMemory(TraverseOp traverse);

/// The access of an operand where rows of vectors are those of all items.
Access getBlockAccess(TraverseOp traverse, const Operand &operand);

/// Makes the device function of TileRunArguments that all threads of a block
/// call: the phase on `rows` times `cols` elements from the first column of a
/// leaf on, or a part of one row in a leaf. Partial results are written, but
/// for those along columns of a flat range, which are added to. When it
/// returns, the threads may not have seen what others wrote.
func::FuncOp emitBlockRun(OpBuilder &builder, TraverseOp traverse,
                          const ProgramStorage &storage, StringRef name);

/// The same of strided rows, with three words before the arguments: rank and
/// address of the extents (kernel_abi.h), number of the first element in
/// row-major order. Operands of all dims are given by their element 0.
func::FuncOp emitStridedBlockRun(OpBuilder &builder, TraverseOp traverse,
                                 const ProgramStorage &storage, StringRef name);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_BLOCKRUN_H
