//===- TileRow.h - a row of the table in the tiles space -------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_TILEROW_H
#define STEPC_PASSES_LOWER_TILEROW_H

#include "passes/lower/ElementRow.h"

#include <optional>

namespace mlir::step {

/// The place of a tensor's buffer among the program's operands.
int64_t getOperandIndex(Value buffer);

/// For each of the operands (by their places) of a strided row the offset in
/// elements of the element number `position`, in row-major order. `rank`, the
/// address `extents` and the results are words.
SmallVector<Value> emitStridedOffsets(const Words &w, Value rank, Value extents,
                                      ArrayRef<int64_t> operands,
                                      Value position);

/// The extents of some dims, words, by their places in a type.
class Extents {
public:
  explicit Extents(const Words &w) : w(w) {}

  void add(Value extent) { extents.push_back(extent); }
  Value operator[](unsigned position) const { return extents[position]; }
  /// Their product.
  Value count(DimSet dims) const;
  /// Of element `number` of a tensor of dims `from`, in row-major order, the
  /// number in one of the dims `onto`, which are among them.
  Value project(Value number, DimSet from, DimSet onto) const;

private:
  const Words &w;
  SmallVector<Value> extents;
};

/// What a row of the table says of a tensor
/// (runtime/include/stepc/kernel_abi.h). All values are words.
class TileRow {
public:
  /// Emits the reading of row number `index`, a word, of the call's table.
  TileRow(const Words &w, const ProgramStorage &storage, const CallWords &call,
          Value index);

  /// The address of a buffer, partial result or share.
  Value getAddress(Value buffer) const;
  /// The same by its place in the workspace.
  Value getWorkspaceAddress(int64_t index) const;
  /// The tensor's rank, 0 where all operands are contiguous.
  Value getRank() const;
  /// The address of the word with the outermost extent, and of the word with
  /// the operand's outermost stride.
  Value getExtentWords() const;
  Value getStrides(Value buffer) const;
  /// The scalar of the program, from its slot.
  Value getScalar(Value scalar) const {
    return emitScalar(w, storage, scalar, scalars, tensorSlots);
  }
  /// Writes an f64 to the slot of the tensor.
  void storeSlot(int64_t slot, Value value) const {
    w.store(value, w.view(tensorSlots, w.b.getF64Type()), w.constant(slot));
  }

  const ProgramStorage &storage;

  const ParamDims &getDims() const { return storage.getParamDims(); }
  /// The extents of dims, of what the rank has (of a flat range: of the whole
  /// tensor), and of the whole tensor. Each is one of the param's, or 1.
  Extents getExtents(ArrayRef<StringAttr> of) const { return get(extents, of); }
  Extents getWhole(ArrayRef<StringAttr> of) const { return get(whole, of); }
  /// Those of the param's dims.
  const Extents &getExtents() const { return extents; }

  Value scalars, tensorSlots;
  /// The address of StepcRoutines; null on a device.
  Value routines;
  /// Rows and columns of an item, and items.
  Value B, N, M;
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
  void readRange();
  int64_t getOperandsWord() const;
  Extents get(const Extents &own, ArrayRef<StringAttr> of) const;

  const Words &w;
  Value row, rowAddress, workspace;
  /// The dims of a row: the param's, and those that follow from them.
  SmallVector<StringAttr> names;
  Extents extents, whole;
};

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_TILEROW_H
