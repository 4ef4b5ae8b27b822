//===- RowClass.h - the table rows and chunks of one kernel ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ROWCLASS_H
#define STEPC_CORE_ROWCLASS_H

#include "core/TensorView.h"

#include "stepc/kernel_abi.h"

#include <cstdint>
#include <vector>

namespace stepc {

/// The dims of a row, for all operands at once: extents of 1 dropped, the
/// parameter's memory order kept (outermost first), and dims joined that every
/// operand keeps without a gap. Rank 0 means contiguous: element i of each
/// operand lies at its address + i, in an order that is the same for all.
class RowLayout {
public:
  /// `strides` has `rank` strides for each of the `operands`.
  void compute(const int64_t *extents, int64_t rank, const int64_t *strides,
               int64_t operands, int64_t param);

  int64_t getRank() const { return rank; }
  /// The extents, then the strides of each operand, as in a row of the table.
  const std::vector<int64_t> &getWords() const { return words; }

private:
  int64_t rank = 0;
  std::vector<int64_t> words;
  std::vector<int64_t> order;
};

/// The rows that one kernel serves: a variant's contiguous ones, or its strided
/// ones. Rows keep their place as long as they live; a removed row leaves a
/// gap for the next.
///
/// Invariant: `chunks` and `middles` have the capacity for the chunks of all
/// rows, so listing them allocates nothing.
class RowClass {
public:
  RowClass(int64_t operands, int64_t bytesPerElement, int64_t chunkElements)
      : operands(operands), bytesPerElement(bytesPerElement),
        chunkElements(chunkElements), rowWords(2 + operands) {}

  /// Takes the memory for more rows of rank `rank` at most, which have
  /// `moreChunks` chunks in all. The table may move.
  void reserve(int64_t numRows, int64_t rank, int64_t moreChunks);

  int64_t countChunks(int64_t elements) const {
    return (elements + chunkElements - 1) / chunkElements;
  }

  /// Adds a row, for which memory was reserved. The words are to be set by the
  /// caller.
  int64_t addRow(int64_t tensor, int64_t elements) noexcept;
  void removeRow(int64_t row, int64_t elements) noexcept;
  void setLayout(int64_t row, const RowLayout &layout) noexcept;

  int64_t *getRow(int64_t row) { return table.data() + row * rowWords; }
  const int64_t *getRow(int64_t row) const {
    return table.data() + row * rowWords;
  }
  int64_t getNumRows() const { return int64_t(owners.size()); }
  /// The tensor of a row, -1 for a gap.
  int64_t getOwner(int64_t row) const { return owners[row]; }
  int64_t getNumChunks() const { return numChunks; }

  void clearList() noexcept { chunks.clear(); }
  void listRow(int64_t row, int64_t elements) noexcept;
  bool hasList() const { return !chunks.empty(); }
  int64_t getListSize() const { return int64_t(chunks.size()); }
  /// Weighs the listed chunks, `before` being the weight of all work before
  /// them; returns the weight up to their end.
  int64_t weighList(int64_t before) noexcept;
  const int64_t *getMiddles() const { return middles.data(); }
  StepcCall getCall() const { return {table.data(), rowWords, chunks.data(), nullptr}; }

  size_t getBytes() const;

private:
  void widen(int64_t words);

  int64_t operands;
  int64_t bytesPerElement;
  int64_t chunkElements;
  int64_t rowWords;
  int64_t numChunks = 0;
  std::vector<int64_t> table;
  std::vector<int64_t> owners;
  std::vector<int64_t> gaps;
  /// What the next run works on.
  std::vector<StepcChunk> chunks;
  std::vector<int64_t> middles;
};

} // namespace stepc

#endif // STEPC_CORE_ROWCLASS_H
