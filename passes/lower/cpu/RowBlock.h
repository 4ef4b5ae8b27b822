//===- RowBlock.h - several phases on a block of rows -----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Phases that trail another (`step.phase ... trailing`) are run with it on a
// strip of rows before the next strip, so that they find its elements in the
// cache: of tensors whose tiles have whole rows. Strips are parts of a block of
// 64 rows, over which columns are added up. A block of longer rows would
// be several tiles, which different threads may have, and fit in few caches.
// Bits are the same either way.
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_ROWBLOCK_H
#define STEPC_PASSES_LOWER_CPU_ROWBLOCK_H

#include "passes/lower/Tile.h"

namespace mlir::step {

/// The rows of a tile, or a strip of them, as a function is told. All are
/// words.
struct RowBlock {
  Value call, row; // the address of the StepcCall, the number in its table
  Tile tile;

  SmallVector<Value> getValues() const {
    return {call, row, tile.item, tile.firstRow, tile.rows};
  }
};

/// An i1: whether the tensor of the row goes by blocks of rows: each tile is
/// one.
Value emitGoesByRowBlocks(const Words &w, const TileRow &row);

/// Makes the function `name(call, row, item, first row, rows)` that does what
/// stands before a trailing phase for one strip of rows: combines what is along
/// its rows, and runs phases of rows on them.
func::FuncOp emitRowBlockFinish(OpBuilder &builder,
                                const ProgramStorage &storage, StringRef name,
                                ArrayRef<Operation *> entries);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_ROWBLOCK_H
