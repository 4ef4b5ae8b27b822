//===- Tile.h - where a tile and its operands lie ---------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_TILE_H
#define STEPC_PASSES_LOWER_TILE_H

#include "passes/lower/TileRow.h"

namespace mlir::step {

/// How the address of an operand changes in a run of rows.
enum class Access {
  Tile,   // with the row and the column: an operand of all dims
  Row,    // with the row
  Column, // with the column
  Item,   // not at all
};

/// The access of an operand in a traversal. In those of vectors, of which each
/// item is run as a single row, it is Tile or Item.
Access getAccess(TraverseOp traverse, const Operand &operand);

/// Whether the operand is of the tensor's own elements: memory of the program
/// with all dims, of which a rank may have a range, and which may be strided.
bool isOfElements(TraverseOp traverse, const Operand &operand);

/// The arguments of a run function, in this order.
struct TileRunArguments {
  TileRunArguments() = default;
  /// Those of a function with so many operands and accumulators.
  TileRunArguments(ValueRange values, int64_t numOperands,
                   int64_t numAccumulators);
  Value scalars;                   // address of the cohort's scalars
  Value tensorSlots;               // address of the tensor's
  SmallVector<Value> operands;     // address of the first row's first element
  SmallVector<Value> accumulators; // address of the first partial result
  Value pitch;      // elements from row to row, of operands of all dims
  Value leaves;     // leaves from row to row, of accumulators along rows
  Value rows, cols; // indices

  SmallVector<Value> getValues() const;
};

/// Where a tile lies. All values are words.
struct Tile {
  Value item;           // b
  Value firstRow, rows; // of the item
  Value firstColumn, columns;
};

/// Where the tile number `number` (a word) of the tensor lies.
Tile locateTile(const Words &w, const TileRow &row, Value number);

/// Emits a loop over what a flat range has of `line`, one row of a tile: leaf
/// by leaf, the first and the last in part.
void forEachLeafOfRange(const Words &w, const TileRow &row, const Tile &line,
                        function_ref<void(const Tile &)> emitLeaf);

/// Emits a tile of a flat range: `emitAll` where the range has all of it, else
/// `emitLine` for each of its rows of which the range may have something.
void emitTileOfRange(const Words &w, const TileRow &row, const Tile &tile,
                     function_ref<void()> emitAll,
                     function_ref<void(const Tile &)> emitLine);

/// The address of the first element that the tile has of the operand.
Value getOperandAddress(const Words &w, const TileRow &row, const Tile &tile,
                        TraverseOp traverse, const Operand &operand);

/// The address of the first partial result that the tile leaves.
Value getPartialAddress(const Words &w, const TileRow &row, const Tile &tile,
                        const Accumulator &accumulator);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_TILE_H
