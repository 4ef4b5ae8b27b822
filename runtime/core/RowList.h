//===- RowList.h - what a class of rows lists for a step ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ROWLIST_H
#define STEPC_CORE_ROWLIST_H

#include "core/RowCodes.h"
#include "core/RowPlaces.h"

#include "stepc/kernel_abi.h"

#include <cstdint>

namespace stepc {

/// A row of a list. Its chunks end where those of the next one begin.
struct ListedRow {
  int64_t row;
  int64_t firstChunk;
};

/// Rows [beginRow, endRow) of a list.
struct Batch {
  int64_t beginRow;
  int64_t endRow;
  /// Of all batches before it.
  int64_t elementsBefore;
  int64_t rowsBefore;
};

/// The listed rows of one class, in the class's memory.
struct RowList {
  /// The table and the chunks.
  StepcCall call;
  int64_t tableWords;
  /// One more than there are: the last says where they end.
  const ListedRow *rows;
  int64_t numRows;
  /// Of rows that go through a schedule one by one, one more than there are;
  /// and indices of large rows.
  const Batch *batches;
  int64_t numBatches;
  const int64_t *large;
  int64_t numLarge;
  /// For each chunk the elements before it, and at last all of them.
  const int64_t *elementsBefore;
  int64_t numChunks;
  /// Of each row which states are codes, and all of them; null: none is.
  const RowCodes *rowCodes;
  const StateCodes *codes;
  /// And which lie in a store.
  const RowPlaces *rowPlaces;
  const PlacedState *places;
  /// Of rows that are worked on together, in the tiles space: each row once, as
  /// a chunk without tiles.
  const StepcChunk *finishes;
  int64_t numFinishes;
};

} // namespace stepc

#endif // STEPC_CORE_ROWLIST_H
