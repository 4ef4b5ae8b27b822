//===- CodedWindows.cpp - states that are codes on a device ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/CodedWindows.h"

#include "core/Fault.h"
#include "core/Reserve.h"

using namespace stepc;
using namespace stepc::cuda;

static_assert(kCodeBlock == STEPC_CODES_BLOCK);

int64_t stepc::cuda::getCodesBytes(const WorkspaceNeed &need) {
  return std::min(need.codedTotal,
                  std::max(need.codedLargest, kCodesWindowBytes));
}

void CodedWindows::reserve(const RowClass &rows, int64_t numWindows,
                           int64_t numSegments, size_t numPlaces) {
  windows.reserve(rows, numWindows);
  int64_t numRows = rows.getTableCapacity() / rows.getRowWords();
  reserveAtLeast(firstPlaces, size_t(numRows + numWindows));
  reserveAtLeast(places, numPlaces);
  reserveAtLeast(passes, size_t(2 * numWindows * numSegments * kCodeFormats));
}

int64_t CodedWindows::measure(const RowList &list, int64_t row, int64_t first,
                              int64_t last) {
  int64_t bytes = 0;
  for (const StateCodes &state : getCodes(list, row))
    if (!state.kept)
      bytes +=
          StateCodes::getScratchBytes(std::min(last, state.elements) - first);
  return bytes;
}

void CodedWindows::findPlaces(const RowList &list) {
  places.clear();
  firstPlaces.clear();
  for (const RowWindow &window : windows.getWindows())
    for (int64_t k = window.beginPiece; k < window.endPiece; ++k) {
      const WindowPiece &piece = windows.getPiece(k);
      firstPlaces.push_back(int64_t(places.size()));
      for (const StateCodes &state : getCodes(list, piece.row))
        places.push_back(
            {state.codes + uintptr_t(state.rows.countBytes(state.format->words,
                                                           piece.first)),
             state.scales +
                 uintptr_t(state.rows.countBlocks(piece.first)) * sizeof(float),
             state.scratch + uintptr_t(piece.first) * sizeof(float)});
    }
}

/// Visits the states of a window with their places and where elements [first,
/// last) of each are f32: `visit(piece, state, place, first, last, address)`.
template <typename Visit>
void CodedWindows::forEachState(const RowList &list, const RowWindow &window,
                                uintptr_t scratch, Visit &&visit) const {
  for (int64_t k = window.beginPiece; k < window.endPiece; ++k) {
    const WindowPiece &piece = windows.getPiece(k);
    size_t next = size_t(firstPlaces[size_t(k)]);
    for (const StateCodes &state : getCodes(list, piece.row)) {
      const CodesPlace &own = places[next++];
      int64_t last = std::min(piece.last, state.elements);
      visit(k, state, own, piece.first, last,
            state.kept ? own.floats : scratch);
      if (!state.kept && !STEPC_FAULT("device-codes-in-one-place"))
        scratch += uintptr_t(StateCodes::getScratchBytes(last - piece.first));
    }
  }
}

/// A kernel adds the elements before a chunk to the address of an operand.
void CodedWindows::place(const RowList &list, int64_t operandsWord,
                         uintptr_t scratch) {
  for (const RowWindow &window : windows.getWindows())
    forEachState(list, window, scratch,
                 [&](int64_t piece, const StateCodes &state, const CodesPlace &,
                     int64_t first, int64_t, uintptr_t address) {
                   windows.getRow(piece)[operandsWord + state.operand] =
                       int64_t(address - uintptr_t(first) * sizeof(float));
                 });
}

/// An entry of elements [first, last) of a state. Rows of whole blocks are one
/// long row.
static void addEntry(const StateCodes &state, const CodesPlace &place,
                     int64_t first, int64_t last, uintptr_t address,
                     CodesPass &pass, std::vector<int64_t> &words) {
  const CodeRows &rows = state.rows;
  int64_t blocks = rows.countBlocks(last) - rows.countBlocks(first);
  bool whole = rows.columns % kCodeBlock == 0;
  words.insert(words.end(),
               {int64_t(address), int64_t(place.codes), int64_t(place.scales),
                blocks, whole ? blocks * kCodeBlock : rows.columns,
                whole ? 0 : (rows.first + first) % rows.columns, pass.tiles});
  ++pass.entries;
  pass.tiles +=
      (blocks + STEPC_CODES_TILE_BLOCKS - 1) / STEPC_CODES_TILE_BLOCKS;
}

void CodedWindows::addPasses(const RowList &list, const RowWindow &window,
                             uint64_t operands, uintptr_t scratch,
                             std::vector<int64_t> &words) {
  for (int32_t format = 1; format <= kCodeFormats; ++format) {
    CodesPass pass;
    pass.first = int64_t(words.size());
    forEachState(list, window, scratch,
                 [&](int64_t, const StateCodes &state, const CodesPlace &place,
                     int64_t first, int64_t last, uintptr_t address) {
                   if ((operands >> state.operand & 1) && first < last &&
                       state.format->number == format)
                     addEntry(state, place, first, last, address, pass, words);
                 });
    passes.push_back(pass);
  }
}

void CodedWindows::addSegment(const RowList &list, const ClassSegment &segment,
                              uintptr_t scratch, std::vector<int64_t> &words) {
  for (const RowWindow &window : windows.getWindows()) {
    addPasses(list, window,
              STEPC_FAULT("device-codes-not-read") ? 0 : segment.reads, scratch,
              words);
    addPasses(list, window,
              STEPC_FAULT("device-codes-not-written") ? 0 : segment.writes,
              scratch, words);
  }
}

/// Those of a segment lie side by side.
bool CodedWindows::any(int64_t segment) const {
  auto size = int64_t(2 * getWindows().size() * size_t(kCodeFormats));
  auto begin = passes.begin() + segment * size;
  return std::any_of(begin, begin + size,
                     [](const CodesPass &pass) { return pass.entries != 0; });
}
