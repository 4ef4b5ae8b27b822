//===- TilePhase.h - what a phase does with one tile -------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_TILEPHASE_H
#define STEPC_PASSES_LOWER_CPU_TILEPHASE_H

#include "passes/lower/Tile.h"

namespace mlir::step {

/// Emits what a phase of tiles does with one tile, by calls of its run
/// function. Of a tensor that is not sharded as a flat range: of contiguous
/// rows, or of strided ones, of which 1024 elements at a time are copied to the
/// stack and back.
class TilePhase {
public:
  /// `run` is what getTileRun made of it, or getListedTileRun where tiles are
  /// strided.
  TilePhase(const Words &w, TraverseOp traverse, func::FuncOp run);

  /// To be emitted in the first block of a function with strided tiles.
  void allocateCopies();

  /// What is accumulated along columns starts from the neutral value. Before
  /// the rest, which may do the rows of the tile in several parts.
  void clearColumns(const TileRow &row, const Tile &tile) const;

  void emitContiguous(const TileRow &row, const Tile &tile) const;
  void emitStrided(const TileRow &row, const Tile &tile) const;
  /// Of a flat range: at once where the range has all of the tile.
  void emitRange(const TileRow &row, const Tile &tile) const;

private:
  void emitRun(const TileRow &row, const Tile &tile, Value rows) const;
  void emitStridedLeaf(const TileRow &row, const Tile &leaf) const;
  void emitRangeRow(const TileRow &row, const Tile &line) const;
  void clearRow(const TileRow &row, const Tile &line) const;

  const Words &w;
  TraverseOp traverse;
  func::FuncOp run;
  SmallVector<Operand> operands;
  SmallVector<Accumulator> accumulators;
  /// For each operand of all dims 1024 elements on the stack, or words.
  SmallVector<Value> copies;
};

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_TILEPHASE_H
