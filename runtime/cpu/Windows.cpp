//===- Windows.cpp - the parts of a segment, window by window -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/Windows.h"

#include "core/Fault.h"

#include <algorithm>

using namespace stepc;
using namespace stepc::cpu;
using store::roundUpToPage;
using store::Span;

/// More than a worker takes alone.
static constexpr int64_t kAllWorkers = int64_t(1) << 40;

void Windows::begin(const WorkPart *firstPart, const WorkPart *lastPart) {
  part = firstPart;
  endPart = lastPart;
  large = item = 0;
}

bool Windows::next(Window &window) {
  while (part != endPart) {
    window.part = *part;
    window.pieces.clear();
    window.spans.clear();
    window.bytes = window.weight = 0;
    window.part.before = 0;
    bool found = part->whole ? nextLarge(window) || nextBatches(window)
                             : nextChunks(window);
    if (found)
      return true;
    begin(part + 1, endPart);
  }
  return false;
}

/// Calls visit(state, from, to) with the bytes of elements [first, end) of each
/// array that the segment has to do with; of all of it where `end` is -1.
template <typename Visit>
void Windows::forPlaces(int64_t row, int64_t first, int64_t end,
                        Visit &&visit) const {
  RowPlaces own = part->rowPlaces ? part->rowPlaces[row] : RowPlaces();
  const PlacedState *begin = part->places + own.first;
  for (const PlacedState *state = begin; state != begin + own.count; ++state) {
    if (!getMoves(*part, *state).any)
      continue;
    int64_t to = end < 0 ? state->bytes : state->getOffset(end, codes);
    visit(*state, state->getOffset(first, codes), std::min(to, state->bytes));
  }
}

int64_t Windows::countBytes(int64_t row, int64_t first, int64_t end) const {
  int64_t bytes = 0;
  forPlaces(row, first, end,
            [&](const PlacedState &, int64_t from, int64_t to) {
              bytes += roundUpToPage(to - from);
            });
  return bytes;
}

int64_t Windows::countBytes(const Batch &batch) const {
  int64_t bytes = 0;
  for (int64_t row = batch.beginRow; row < batch.endRow; ++row)
    bytes += countBytes(part->rows[row].row, 0, -1);
  return bytes;
}

/// What lies side by side in the store and in the window is one span.
void Windows::add(int64_t row, int64_t first, int64_t end,
                  Window &window) const {
  auto *words = const_cast<int64_t *>(part->call.table) +
                row * part->call.rowWords + part->operandsWord;
  forPlaces(
      row, first, end, [&](const PlacedState &state, int64_t from, int64_t to) {
        const StateMoves moves = getMoves(*part, state);
        const Span span = {int64_t(state.address - base) + from,
                           roundUpToPage(to - from), window.bytes, moves.out,
                           moves.in};
        window.pieces.push_back(
            {&state, words + state.operand, first, window.bytes});
        window.bytes += span.bytes;
        Span *last = window.spans.empty() ? nullptr : &window.spans.back();
        if (last && last->offset + last->bytes == span.offset &&
            last->changes == span.changes && last->reads == span.reads)
          last->bytes += span.bytes;
        else
          window.spans.push_back(span);
      });
}

/// All workers have their shares of it.
bool Windows::nextLarge(Window &window) {
  if (large == part->numLarge)
    return false;
  add(part->rows[part->large[large]].row, 0, -1, window);
  window.part.large = part->large + large++;
  window.part.numLarge = 1;
  window.part.numBatches = 0;
  window.weight = kAllWorkers;
  return true;
}

bool Windows::nextBatches(Window &window) {
  if (item == part->numBatches)
    return false;
  WorkPart &own = window.part;
  own.numLarge = 0;
  const int64_t first = item;
  for (; item < part->numBatches; ++item) {
    const Batch &batch = part->batches[item];
    if (item != first && window.bytes + countBytes(batch) > mostBytes)
      break;
    for (int64_t row = batch.beginRow; row < batch.endRow; ++row)
      add(part->rows[row].row, 0, -1, window);
  }
  own.batches += first;
  own.numBatches = item - first;
  if (STEPC_FAULT("store-last-batch-left-out") && own.numBatches > 1)
    --own.numBatches;
  own.before = -own.getWeightBefore(0);
  window.weight = own.getWeightBefore(own.numBatches);
  return true;
}

/// The chunk behind the piece that begins with one.
int64_t Windows::getPieceEnd(int64_t chunk) const {
  const StepcChunk *chunks = part->call.chunks;
  const int64_t row = chunks[chunk].row;
  const int64_t cut = part->rowPlaces ? part->rowPlaces[row].cut : 0;
  int64_t end = chunk + 1;
  while (end < part->numChunks && chunks[end].row == row &&
         (cut == 0 || chunks[end].start % cut != 0))
    ++end;
  return end;
}

/// The chunk behind as many pieces of a row, from the one that begins with
/// `chunk` on, as fit beside what the window has; `chunk` itself: none does.
/// Each state of the row lies in one piece of the window.
int64_t Windows::findFitting(int64_t chunk, const Window &window) const {
  int64_t fitting = chunk;
  for (int64_t end = chunk; end < part->numChunks;) {
    end = getPieceEnd(end);
    if (window.bytes + countBytes(chunk, end) > mostBytes)
      break;
    fitting = end;
    if (isRowEnd(end, chunk))
      break;
  }
  return fitting;
}

/// Whether the row of `chunk` ends before `end`.
bool Windows::isRowEnd(int64_t end, int64_t chunk) const {
  const StepcChunk *chunks = part->call.chunks;
  return end == part->numChunks || chunks[end].row != chunks[chunk].row;
}

/// The elements of chunks [chunk, end) of a row: to the end of it, -1.
int64_t Windows::getElementEnd(int64_t chunk, int64_t end) const {
  return isRowEnd(end, chunk) ? -1 : part->call.chunks[end].start;
}

int64_t Windows::countBytes(int64_t chunk, int64_t end) const {
  const StepcChunk &first = part->call.chunks[chunk];
  return countBytes(first.row, first.start, getElementEnd(chunk, end));
}

bool Windows::nextChunks(Window &window) {
  if (item == part->numChunks)
    return false;
  const int64_t first = item;
  while (item < part->numChunks) {
    int64_t end = findFitting(item, window);
    if (end == item && item != first)
      break;
    // The first fits: a slot has room for the largest.
    end = std::max(end, getPieceEnd(item));
    const StepcChunk &chunk = part->call.chunks[item];
    add(chunk.row, chunk.start, getElementEnd(item, end), window);
    const bool isCut = !isRowEnd(end, item);
    item = end;
    if (isCut)
      break;
  }
  WorkPart &own = window.part;
  own.call.chunks += first;
  own.elementsBefore += first;
  own.numChunks = item - first;
  if (STEPC_FAULT("store-last-chunk-left-out") && own.numChunks > 1)
    --own.numChunks;
  own.before = -own.getWeightBefore(0);
  window.weight = own.getWeightBefore(own.numChunks);
  return true;
}
