//===- TileRun.h - functions over rows of elements --------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_TILERUN_H
#define STEPC_PASSES_LOWER_CPU_TILERUN_H

#include "passes/lower/Tile.h"

namespace mlir::step {

/// Makes the function that runs the phase on `rows` times `cols` elements, from
/// the first column of a leaf on, each row in vectors of 16 and the rest one by
/// one. Accumulators along columns are added to what is there.
/// One function, `NAME_run`, for all that call it.
func::FuncOp getTileRun(OpBuilder &builder, TraverseOp traverse,
                        const ProgramStorage &storage, int64_t prefetchLines);

/// The same for elements that were copied from strided memory. Where they
/// stand (the position operand) is then no longer an address that grows by one
/// from element to element, but an i64 of each: of rows of 3 that were cut from
/// rows of 8, elements stand at 0, 1, 2, 8, 9, 10, 16, .... A function of its
/// own, `NAME_listed_run`, for phases that ask for the position; else the
/// other.
func::FuncOp getListedTileRun(OpBuilder &builder, TraverseOp traverse,
                              const ProgramStorage &storage,
                              int64_t prefetchLines);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_TILERUN_H
