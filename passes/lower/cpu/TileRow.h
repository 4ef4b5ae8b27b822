//===- TileRow.h - a row of the table in the tiles space ---------*- C++
//-*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_TILEROW_H
#define STEPC_PASSES_LOWER_CPU_TILEROW_H

#include "passes/lower/Words.h"

#include <optional>

namespace mlir::step {

/// What a row of the table says of a tensor
/// (runtime/include/stepc/kernel_abi.h). All values are words.
class TileRow {
public:
  /// Emits the reading of row number `index`, a word, of `call`, an address.
  TileRow(const Words &w, ProgramOp program, Value call, Value index);

  /// The address of the program's operand or buffer of that name.
  Value getAddress(OperandAttr operand) const;
  Value getBuffer(StringRef name) const;
  /// The tensor's rank, 0 where all operands are contiguous.
  Value getRank() const;
  /// The address of the word with the outermost extent, and of the word with
  /// the operand's outermost stride.
  Value getExtents() const;
  Value getStrides(OperandAttr operand) const;

  Value scalars, tensorSlots;
  Value B, N, M;
  /// The same of the whole tensor, of which this may be a rank's part.
  Value wholeB, wholeN, wholeM;
  Value rowBlocks;   // ceil(N / 64)
  Value tileColumns; // tiles beside each other in a row of tiles
  Value leaves;      // ceil(M / 1024)

  /// Of programs whose tensors are flat ranges: the elements that the rank has,
  /// and of what these touch the first and how many: rows of all items, blocks
  /// of 64 rows (those of an item begin with its first row), items.
  struct Range {
    Value begin, end, elements;
    Value firstRow, rows;
    Value firstBlock, blocks;
    Value firstItem, items;
  };
  std::optional<Range> range;

private:
  int64_t getIndex(OperandAttr operand) const;
  void readRange();

  const Words &w;
  ProgramOp program;
  Value row, rowAddress, workspace;
};

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_TILEROW_H
