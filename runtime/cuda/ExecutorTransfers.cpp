//===- ExecutorTransfers.cpp - what crosses ranks on a CUDA device --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Pieces are entries of a list on the device, each at its place, so that a step
// like the one before stores nothing. A graph stores what it reads, whenever it
// is launched, as its gradients may be others than those of steps since then.
//
//===----------------------------------------------------------------------===//

#include "cuda/Executor.h"

#include "core/Fault.h"

#include <algorithm>
#include <cstring>

using namespace stepc;
using namespace stepc::cuda;

static_assert(int(Storage::F32) == STEPC_TYPE_F32 &&
              int(Storage::F64) == STEPC_TYPE_F64 &&
              int(Storage::BF16) == STEPC_TYPE_BF16 &&
              int(Storage::F16) == STEPC_TYPE_F16);

/// Bytes of one access of a thread.
static constexpr int64_t kAccessBytes = 16;

static int64_t getKind(Storage from, Storage to) {
  return STEPC_CONVERT_KIND(int64_t(from), int64_t(to));
}

static int64_t countTiles(int64_t elements) {
  return (elements + STEPC_CONVERT_TILE_ELEMENTS - 1) /
         STEPC_CONVERT_TILE_ELEMENTS;
}

void Executor::reservePieces(size_t numPlaces) {
  ContextScope scope(*device);
  size_t words = numPlaces * STEPC_CONVERT_ENTRY_WORDS;
  reserve(pieces, words);
  if (pieceWords.size() < words)
    pieceWords.resize(std::max(words, 2 * pieceWords.size()));
  // Graphs from before would bring and give other tensors than ranks have now.
  if (captured)
    raiseVersion();
}

/// Begins a step before what crosses is packed.
void Executor::beginTransfers(bool graph) {
  capturing = graph;
  begun = false;
  if (!graph)
    return;
  captured = true;
  beginLaunches(graph);
  enqueue(DescribeRows());
  begun = true;
}

void Executor::setPiece(const ConvertPiece &piece, int64_t tile) {
  bool copied =
      !piece.source || (piece.from == piece.to && piece.divisor == 1.0);
  int64_t *entry = pieceWords.data() + piece.place * STEPC_CONVERT_ENTRY_WORDS;
  if (!STEPC_FAULT("device-piece-of-before") ||
      !entry[STEPC_CONVERT_ENTRY_TARGET])
    entry[STEPC_CONVERT_ENTRY_SOURCE] = int64_t(piece.source);
  entry[STEPC_CONVERT_ENTRY_TARGET] = int64_t(piece.target);
  entry[STEPC_CONVERT_ENTRY_COUNT] = piece.count;
  entry[STEPC_CONVERT_ENTRY_KIND] =
      copied ? getByteSize(piece.to) : getKind(piece.from, piece.to);
  entry[STEPC_CONVERT_ENTRY_DIVISOR] = getBits(piece.divisor);
  entry[STEPC_CONVERT_ENTRY_TILE] = tile;
}

/// The skip of what moves data: nothing, but in graphs that rely on what is
/// gone. A step that is skipped brings gradients all the same, and gives
/// parameters as they were.
int64_t Executor::getTransferSkip() const {
  return getState(capturing ? STEPC_STATE_STALE_NOW : STEPC_STATE_NEVER);
}

/// A launch for each run of places.
void Executor::convert(const ConvertPiece *list, size_t size) {
  guard([&] {
    for (size_t begin = 0, end = 0; begin < size; begin = end) {
      int64_t tiles = 0;
      do {
        setPiece(list[end], tiles);
        tiles += countTiles(list[end].count);
        ++end;
      } while (end < size && list[end].place == list[end - 1].place + 1);
      if (tiles > 0)
        launchPieces(list[begin].place, end - begin, tiles);
    }
  });
}

void Executor::launchPieces(size_t place, size_t count, int64_t tiles) {
  size_t first = place * STEPC_CONVERT_ENTRY_WORDS;
  pieces.updatePart(launcher, pieceWords, first,
                    first + count * STEPC_CONVERT_ENTRY_WORDS,
                    capturing && !STEPC_FAULT("device-graph-keeps-no-pieces"));
  int64_t arguments[] = {int64_t(pieces.getAddress() + first * sizeof(int64_t)),
                         int64_t(count), tiles, getTransferSkip()};
  launcher.launch(launcher.getModule().getConvert(), tiles, arguments, 4);
}

void Executor::addUp(const RowSum &sum) {
  if (sum.count == 0)
    return;
  int64_t arguments[] = {
      int64_t(sum.rows),    sum.stride,        sum.numRows,
      int64_t(sum.target),  sum.count,         getKind(sum.wire, sum.sum),
      getBits(sum.divisor), int64_t(sum.adds), getTransferSkip()};
  int64_t lanes =
      kAccessBytes / std::min(getByteSize(sum.wire), getByteSize(sum.sum));
  int64_t perBlock = kBlockThreads * lanes;
  guard([&] {
    launcher.launch(launcher.getModule().getSum(),
                    (sum.count + perBlock - 1) / perBlock, arguments, 9);
  });
}

int32_t Executor::callCommunicator(int32_t success,
                                   const std::function<int32_t(void *)> &call) {
  ContextScope scope(*device);
  int32_t code = 0;
  try {
    code = call(launcher.getStream());
  } catch (...) {
    broken = true;
    throw;
  }
  // What was enqueued before may wait for what was not.
  broken |= code != success;
  return code;
}
