//===- RowWindows.cpp - rows that a device works on in turns --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/RowWindows.h"

#include "core/Reserve.h"

using namespace stepc;
using namespace stepc::cuda;

/// Each window but the first begins in the midst of one row at most.
void RowWindows::reserve(const RowClass &rows, int64_t numWindows) {
  int64_t numRows = rows.getTableCapacity() / rows.getRowWords();
  auto numPieces = size_t(numRows + numWindows);
  reserveAtLeast(windows, size_t(numWindows));
  reserveAtLeast(pieces, numPieces);
  reserveAtLeast(chunks, size_t(rows.getChunkCapacity()));
  reserveAtLeast(finishes, size_t(rows.getFinishCapacity()));
  reserveAtLeast(table, numPieces * size_t(rows.getRowWords()));
}

void RowWindows::open() {
  RowWindow window = {};
  window.beginPiece = window.endPiece = int64_t(pieces.size());
  window.beginChunk = window.endChunk = int64_t(chunks.size());
  window.beginFinish = window.endFinish = int64_t(finishes.size());
  windows.push_back(window);
}

void RowWindows::addChunk(const StepcChunk &chunk) {
  chunks.push_back({int64_t(pieces.size()) - 1, chunk.start, chunk.length});
  windows.back().endChunk = int64_t(chunks.size());
  windows.back().endPiece = int64_t(pieces.size());
}

void RowWindows::copyRows(const RowList &list) {
  rowWords = list.call.rowWords;
  table.resize(pieces.size() * size_t(rowWords));
  for (size_t k = 0; k < pieces.size(); ++k)
    std::copy_n(list.call.table + pieces[k].row * rowWords, rowWords,
                getRow(int64_t(k)));
}

RowList RowWindows::getList(const RowList &list) const {
  RowList own = list;
  own.call.table = table.data();
  own.call.chunks = chunks.data();
  own.tableWords = int64_t(table.size());
  own.finishes = finishes.data();
  own.numFinishes = int64_t(finishes.size());
  return own;
}
