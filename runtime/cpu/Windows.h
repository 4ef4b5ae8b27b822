//===- Windows.h - the parts of a segment, window by window -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cuts what a segment does into windows, each of consecutive items of one part
// whose states fit into a slot of a ring:
//
//   a free part   chunks; a row that has pieces is cut where one begins
//   a whole part  each large row on its own, then batches
//
// What has no states in the store goes along in the order of the items.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_WINDOWS_H
#define STEPC_CPU_WINDOWS_H

#include "core/PlacedStates.h"
#include "cpu/Work.h"
#include "store/Ring.h"

#include <vector>

namespace stepc::cpu {

/// An array of a row that is in a window, from element `first` on.
struct PlacedPiece {
  const PlacedState *state;
  int64_t *word; // of the operand in the row
  int64_t first;
  int64_t at; // bytes from the window's begin
};

/// Items of one part, and what of the store they need.
struct Window {
  WorkPart part;
  /// Of the part alone.
  int64_t weight;
  std::vector<PlacedPiece> pieces;
  std::vector<store::Span> spans;
  int64_t bytes;
};

class Windows {
public:
  /// `base`: the address of byte 0 of the store.
  Windows(uintptr_t base, const StateCodes *codes, int64_t mostBytes)
      : base(base), codes(codes), mostBytes(mostBytes) {}

  /// From now on those of these parts.
  void begin(const WorkPart *firstPart, const WorkPart *lastPart);
  /// The next one; false: there is none.
  bool next(Window &window);

private:
  bool nextLarge(Window &window);
  bool nextBatches(Window &window);
  bool nextChunks(Window &window);
  int64_t getPieceEnd(int64_t chunk) const;
  int64_t findFitting(int64_t chunk, const Window &window) const;
  bool isRowEnd(int64_t end, int64_t chunk) const;
  int64_t getElementEnd(int64_t chunk, int64_t end) const;
  int64_t countBytes(int64_t chunk, int64_t end) const;
  template <typename Visit>
  void forPlaces(int64_t row, int64_t first, int64_t end, Visit &&visit) const;
  int64_t countBytes(int64_t row, int64_t first, int64_t end) const;
  int64_t countBytes(const Batch &batch) const;
  void add(int64_t row, int64_t first, int64_t end, Window &window) const;

  uintptr_t base;
  const StateCodes *codes;
  int64_t mostBytes;
  const WorkPart *part = nullptr;
  const WorkPart *endPart = nullptr;
  /// The next large row, and the next chunk or batch.
  int64_t large = 0;
  int64_t item = 0;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_WINDOWS_H
