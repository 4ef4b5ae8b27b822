//===- RowWindows.h - rows that a device works on in turns ------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where operands lie in memory that is used again and again, a segment runs
// window by window: all of its entries over some of a list, then over the next.
// A row of elements is cut where chunks begin; one of tiles is never cut. Each
// piece of a row in a window has a row of its own in the table that the device
// gets, whose addresses are those of the window.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_ROWWINDOWS_H
#define STEPC_CUDA_ROWWINDOWS_H

#include "core/RowClass.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace stepc::cuda {

/// Elements [first, last) of a row of the class; of one of tiles all of them.
struct WindowPiece {
  int64_t row;
  int64_t first;
  int64_t last;
};

/// A part of the lists.
struct RowWindow {
  int64_t beginPiece, endPiece;
  int64_t beginChunk, endChunk;
  int64_t beginFinish, endFinish;
};

/// What a window has of memory that is used again: in a slot of a ring, and for
/// the f32 of codes.
struct WindowBytes {
  int64_t slot = 0;
  int64_t floats = 0;

  WindowBytes operator+(const WindowBytes &other) const {
    return {slot + other.slot, floats + other.floats};
  }
  bool fitsIn(const WindowBytes &most) const {
    return slot <= most.slot && floats <= most.floats;
  }
};

/// The windows of one class. Cutting and copying allocate nothing.
class RowWindows {
public:
  /// Takes memory for the lists of a class, in so many windows at most.
  void reserve(const RowClass &rows, int64_t numWindows);

  /// Cuts a list. `measure(row, first, last)` says how much of what a window
  /// has `most` of the elements take: it has more where one piece, or row of
  /// tiles, does. `inChunks`: chunks count elements. Of such a row
  /// `getCut(row)` says multiples of how many elements pieces begin at; 0: the
  /// row is one.
  template <typename Measure, typename GetCut>
  void cut(const RowList &list, bool inChunks, const WindowBytes &most,
           Measure &&measure, GetCut &&getCut);
  /// The rows of pieces as the class has them now.
  void copyRows(const RowList &list);

  const std::vector<RowWindow> &getWindows() const { return windows; }
  const WindowPiece &getPiece(int64_t piece) const {
    return pieces[size_t(piece)];
  }
  int64_t *getRow(int64_t piece) {
    return table.data() + size_t(piece) * size_t(rowWords);
  }
  /// The list with the table, chunks and finishes of pieces.
  RowList getList(const RowList &list) const;

private:
  void open();
  void addChunk(const StepcChunk &chunk);

  std::vector<RowWindow> windows;
  std::vector<WindowPiece> pieces;
  std::vector<StepcChunk> chunks;
  std::vector<StepcChunk> finishes;
  std::vector<int64_t> table;
  int64_t rowWords = 0;
};

template <typename Measure, typename GetCut>
void RowWindows::cut(const RowList &list, bool inChunks,
                     const WindowBytes &most, Measure &&measure,
                     GetCut &&getCut) {
  windows.clear();
  pieces.clear();
  chunks.clear();
  finishes.clear();
  WindowBytes bytes;
  auto makeRoom = [&](const WindowBytes &more) {
    if (windows.empty() || !(bytes + more).fitsIn(most)) {
      open();
      bytes = {};
    }
    bytes = bytes + more;
  };
  auto isOpen = [&](int64_t row) {
    return windows.back().beginPiece != int64_t(pieces.size()) &&
           pieces.back().row == row;
  };
  const StepcChunk *all = list.call.chunks;
  for (int64_t k = 0; k < list.numRows; ++k) {
    const ListedRow &row = list.rows[k];
    const int64_t endChunk = list.rows[k + 1].firstChunk;
    if (!inChunks) {
      makeRoom(measure(row.row, int64_t(0), INT64_MAX));
      pieces.push_back({row.row, 0, INT64_MAX});
      finishes.push_back({int64_t(pieces.size()) - 1, 0, 0});
      for (int64_t c = row.firstChunk; c < endChunk; ++c)
        addChunk(all[c]);
    }
    const int64_t step = inChunks ? getCut(row.row) : 0;
    for (int64_t c = row.firstChunk, end = c; inChunks && c < endChunk;
         c = end) {
      do
        ++end;
      while (end < endChunk && (step == 0 || all[end].start % step != 0));
      const int64_t last = all[end - 1].start + all[end - 1].length;
      makeRoom(measure(row.row, all[c].start, last));
      if (!isOpen(row.row))
        pieces.push_back({row.row, all[c].start, last});
      pieces.back().last = last;
      for (int64_t own = c; own < end; ++own)
        addChunk(all[own]);
    }
    RowWindow &window = windows.back();
    window.endFinish = int64_t(finishes.size());
    window.endPiece = int64_t(pieces.size());
  }
}

} // namespace stepc::cuda

#endif // STEPC_CUDA_ROWWINDOWS_H
