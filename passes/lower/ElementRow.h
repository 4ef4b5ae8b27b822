//===- ElementRow.h - a row of the table in the elements space --*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_ELEMENTROW_H
#define STEPC_PASSES_LOWER_ELEMENTROW_H

#include "passes/lower/BodyEmitter.h"

namespace mlir::step {

/// The words of a StepcCall.
struct CallWords {
  Value table, rowWords, chunks, workspace;
  /// Null on a device, which has none.
  Value routines;

  /// Emits the reading of the words from the address of one.
  static CallWords load(const Words &w, Value call);
};

/// What an entry of the chunk list says: elements [start, start + length) of a
/// row of the table, whose address `row` is. All are words.
struct Chunk {
  Value row, start, length;
};

/// Emits the reading of entry number `entry`, an index.
Chunk readChunk(const Words &w, const CallWords &call, Value entry);

/// For each of `count` operands the offset in elements of the element number
/// `position`, a word, in row-major order. `getExtent(dim)` and
/// `getStride(k, dim)` emit words of what they are called with: an index, and
/// the number of an operand.
SmallVector<Value> emitOffsets(const Words &w, Value rank, Value position,
                               int64_t count,
                               function_ref<Value(Value)> getExtent,
                               function_ref<Value(int64_t, Value)> getStride);

/// What a row of the table says of a tensor of the elements space
/// (runtime/include/stepc/kernel_abi.h).
class ElementRow {
public:
  /// `row` is its address. The references live as long as this.
  ElementRow(const Words &w, ArrayRef<Operand> operands, Value row)
      : w(w), operands(operands), row(w.words(row)) {}

  Value getScalars() const;
  /// The address of operand `k`'s element 0.
  Value getAddress(int64_t k) const;
  /// The address of its element number `position`, a word, in a dense row.
  Value getAddress(int64_t k, Value position) const;
  /// An index; 0 in rows of contiguous kernels.
  Value getRank() const;
  /// The extent of `dim`, an index.
  Value getExtent(Value dim) const;
  /// Operand `k`'s stride of `dim`, in elements.
  Value getStride(Value rank, int64_t k, Value dim) const;
  /// For each operand the offset in elements of the element number `position`,
  /// a word, in row-major order.
  SmallVector<Value> emitOffsets(Value rank, Value position) const;

private:
  Value extentIndex(Value dim) const;

  const Words &w;
  ArrayRef<Operand> operands;
  Value row; // a view of words
};

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_ELEMENTROW_H
