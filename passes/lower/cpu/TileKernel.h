//===- TileKernel.h - kernels of the tiles space ----------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_TILEKERNEL_H
#define STEPC_PASSES_LOWER_CPU_TILEKERNEL_H

#include "passes/lower/Words.h"
#include "passes/schedule/ProgramStorage.h"
#include "passes/schedule/Schedule.h"

namespace mlir::step {

/// Makes the kernel (StepcKernel) of a phase of tiles for contiguous rows,
/// named as the phase, and the one for strided rows, with the suffix
/// `_strided`. A strided kernel copies 1024 elements at a time to the stack,
/// runs the same code on them, and copies back what is written.
///
/// `train` is the kernel's entry of the schedule, and those behind it up to the
/// last phase that trails it: what they do is done by this kernel, where
/// tensors go by blocks of rows (RowBlock.h).
void emitTileKernels(OpBuilder &builder, const ProgramStorage &storage,
                     ArrayRef<ScheduleEntry> train, int64_t prefetchLines);

/// Makes the StepcFinish function `name` of the entries between two traversals:
/// step.combine, phases of vectors and step.tensor_scalars. `isOfRowBlocks`: a
/// phase behind it trails, so that nothing is done for tensors that go by
/// blocks of rows. `avx512`: products are for it.
void emitFinish(OpBuilder &builder, const ProgramStorage &storage,
                StringRef name, ArrayRef<Operation *> entries,
                bool isOfRowBlocks, bool avx512);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_TILEKERNEL_H
