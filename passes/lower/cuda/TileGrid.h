//===- TileGrid.h - device kernels of the tiles space -----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CUDA_TILEGRID_H
#define STEPC_PASSES_LOWER_CUDA_TILEGRID_H

#include "passes/lower/TileRow.h"
#include "passes/schedule/Schedule.h"

namespace mlir::step {

/// Makes the entry points of a phase of tiles, `name` and, but for flat ranges,
/// `name_strided`, and the device functions that they call. The insertion point
/// is in a gpu.module.
void emitTileGrids(OpBuilder &builder, TraverseOp traverse,
                   const ProgramStorage &storage);

/// Makes the entry points of the entries between two traversals, one for each
/// part in which they are launched.
void emitFinishGrid(OpBuilder &builder, const ProgramStorage &storage,
                    const ScheduleEntry &finish);

/// Makes the entry point `name(list, begin, end)`, which combines a statistic
/// over tensors: a block for each entry of four words (docs/cuda.md).
void emitStatisticGrid(const Words &w, StringRef name, Combiner combiner);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_TILEGRID_H
