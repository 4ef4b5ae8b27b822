//===- RowClass.h - the table rows and chunks of one kernel -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ROWCLASS_H
#define STEPC_CORE_ROWCLASS_H

#include "core/RowCodes.h"
#include "core/RowLayout.h"
#include "core/RowList.h"
#include "core/Tiles.h"

#include <cstdint>
#include <vector>

namespace stepc {

/// What a chunk or row costs beside its bytes, in bytes: the call of its loop.
inline constexpr int64_t kItemWeight = 512;

/// The elements of a chunk where nobody asks for others.
inline constexpr int64_t kDefaultChunkElements = 16384;

/// How much work a row is.
struct RowSize {
  int64_t elements = 0;
  /// Elements or tiles, as chunks count.
  int64_t units = 0;
  int64_t unitsPerChunk = 1;
  /// Of the buffers that are not live, and of states that are codes.
  int64_t workspace = 0;
  bool coded = false;
  /// Where rows are worked on together, what is handed over to the host, how
  /// many matrices, and what its routines work in.
  int64_t handed = 0;
  int64_t handedMatrices = 0;
  int64_t routine = 0;

  int64_t countChunks() const {
    return (units + unitsPerChunk - 1) / unitsPerChunk;
  }
};

/// The rows that one schedule serves: a variant's contiguous ones, or its
/// strided ones. Rows keep their place as long as they live; a removed row
/// leaves a gap for the next.
///
/// Invariant: the lists have the capacity for all rows and their chunks, so
/// listing them allocates nothing.
class RowClass {
public:
  /// Chunks have about `chunkElements` elements.
  /// `codes`: those of the plan's states, in which listing says where they are
  /// f32.
  RowClass(const Variant &variant, int64_t chunkElements,
           std::vector<StateCodes> *codes = nullptr);

  /// From now on rows are worked on all at once: each has a workspace of its
  /// own, and a chunk has one tile. Before the first row is added.
  void setTogether() { together = true; }
  bool isTogether() const { return together; }

  /// Where the records and the matrices lie that rows hand over to the host.
  void setHanded(uintptr_t ownRecords, uintptr_t ownMatrices) noexcept {
    records = ownRecords;
    matrices = ownMatrices;
  }

  RowSize getSize(const TileShape &shape) const;

  /// Whether all workers share the row: it does not stay in a cache from one
  /// traversal to the next. None is where rows are worked on together, or where
  /// their products are most of the work, which one worker does.
  bool isLarge(const RowSize &size) const;

  /// What rows like this one take at most that are worked on in a batch, or
  /// this one alone, if each takes `rowBytes`.
  int64_t getMostOfBatch(const RowSize &size, int64_t rowBytes) const;

  /// Takes the memory for more rows of rank `rank` at most, which have
  /// `moreChunks` chunks in all. The table may move.
  void reserve(int64_t numRows, int64_t rank, int64_t moreChunks);

  /// Adds a row, for which memory was reserved. The words are to be set by the
  /// caller.
  int64_t addRow(const RowSize &size) noexcept;
  void removeRow(int64_t row, const RowSize &size) noexcept;
  void setLayout(int64_t row, const RowLayout &layout) noexcept;

  /// Which codes the row has. Where its kernels take tiles, rows of the class
  /// are taken one by one from then on.
  void setCodes(int64_t row, RowCodes own) noexcept;
  RowCodes getCodes(int64_t row) const {
    return rowCodes.empty() ? RowCodes() : rowCodes[size_t(row)];
  }
  /// Which states of the row lie in a store.
  void setPlaces(int64_t row, RowPlaces own) noexcept;
  RowPlaces getPlaces(int64_t row) const {
    return rowPlaces.empty() ? RowPlaces() : rowPlaces[size_t(row)];
  }
  /// Whether rows are taken through the schedule one by one.
  bool isWhole() const { return whole; }
  bool hasCodes() const { return !rowCodes.empty(); }
  /// The bytes of a row of rank `rank`.
  size_t getRowBytes(int64_t rank) const;

  int64_t *getRow(int64_t row) { return table.data() + row * rowWords; }
  const int64_t *getRow(int64_t row) const {
    return table.data() + row * rowWords;
  }
  /// The words of the operands; the workspace's follow.
  int64_t getOperandsWord() const { return operandsWord; }
  int64_t getRowWords() const { return rowWords; }
  /// The words before the layout's.
  int64_t getFixedWords() const { return fixedWords; }
  int64_t getNumChunks() const { return numChunks; }
  /// The words, chunks and finishes for which memory was reserved.
  int64_t getTableCapacity() const { return int64_t(table.capacity()); }
  int64_t getChunkCapacity() const { return int64_t(chunks.capacity()); }
  int64_t getFinishCapacity() const { return int64_t(finishes.capacity()); }

  void clearList() noexcept;
  void listRow(int64_t row, const RowSize &size) noexcept;
  /// Ends the list, and a batch that is open.
  void finishList() noexcept;
  bool hasList() const { return !rows.empty(); }
  RowList getList() const noexcept;
  int64_t getListedElements() const { return listedElements; }

  size_t getBytes() const;

  /// What a worker needs at most for one batch, if there are rows of this size
  /// that take `total` bytes in all.
  static int64_t getBatchWorkspace(int64_t largest, int64_t total);

private:
  int64_t getFootprint(const RowSize &size) const;
  void widen(int64_t words);
  void listWhole(int64_t row, const RowSize &size) noexcept;
  void placeWorkspace(int64_t row, int64_t offset) noexcept;
  int64_t placeBuffers(int64_t row, int64_t offset) noexcept;
  void placeHanded(int64_t row) noexcept;

  const Variant &variant;
  int64_t chunkElements;
  bool whole;
  bool tiles;
  bool products;
  bool handsOver;
  bool together = false;
  uintptr_t records = 0;
  uintptr_t matrices = 0;
  int64_t operandsWord;
  int64_t fixedWords;
  int64_t rowWords;
  int64_t numRows = 0;
  int64_t numChunks = 0;
  std::vector<int64_t> table;
  std::vector<int64_t> gaps;
  std::vector<StateCodes> *codes;
  /// Of each row; empty where none has any.
  std::vector<RowCodes> rowCodes;
  std::vector<RowPlaces> rowPlaces;

  // What the next run works on; rows, elementsBefore and batches end with one
  // more element once the list is finished.
  std::vector<StepcChunk> chunks;
  std::vector<StepcChunk> finishes;
  std::vector<int64_t> elementsBefore;
  std::vector<ListedRow> rows;
  std::vector<Batch> batches;
  std::vector<int64_t> large;
  int64_t listedElements = 0;
  int64_t listedWorkspace = 0;
  int64_t listedHanded = 0;
  int64_t batchedElements = 0;
  int64_t batchedRows = 0;
  bool batchOpen = false;
  int64_t batchBytes = 0;
  int64_t batchWorkspace = 0;
};

} // namespace stepc

#endif // STEPC_CORE_ROWCLASS_H
