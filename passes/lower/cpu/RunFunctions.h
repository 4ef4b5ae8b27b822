//===- RunFunctions.h - functions over one run of elements ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_RUNFUNCTIONS_H
#define STEPC_PASSES_LOWER_CPU_RUNFUNCTIONS_H

#include "passes/lower/BodyEmitter.h"

namespace mlir::step {

/// Runs of fewer elements are not prefetched from inside: what they would ask
/// for belongs to other tensors. Kernels prefetch them a few chunks ahead.
inline constexpr int64_t kShortRun = 2048;

/// How many lines of each of `numStreams` operands a loop asks for ahead of
/// itself, where `prefetchLines` are to be on their way in all.
int64_t getLinesAhead(int64_t prefetchLines, int64_t numStreams);

/// Makes `void name(scalars, addresses..., count)`: the phase on `count`
/// consecutive elements from each operand's address, in vectors of 512 bits of
/// the compute type, and the rest one by one. `prefetchLines` is how many lines
/// are on their way ahead of the loop; 0: none is asked for.
func::FuncOp emitContiguousRun(OpBuilder &builder, TraverseOp traverse,
                               const ProgramStorage &storage, StringRef name,
                               int64_t prefetchLines);

/// Makes `void name(scalars, addresses..., strides..., count)`: the same with a
/// stride in bytes for each operand, one element at a time.
func::FuncOp emitStridedRun(OpBuilder &builder, TraverseOp traverse,
                            const ProgramStorage &storage, StringRef name);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_RUNFUNCTIONS_H
