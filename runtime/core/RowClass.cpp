//===- RowClass.cpp - the table rows and chunks of one kernel -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/RowClass.h"

#include "core/Reserve.h"

#include <algorithm>
#include <cstdlib>

using namespace stepc;

/// What a chunk costs beside its bytes, in bytes: the call of the row's loop.
static constexpr int64_t kChunkWeight = 512;

void RowLayout::compute(const int64_t *extents, int64_t numDims,
                        const int64_t *strides, int64_t operands,
                        int64_t param) {
  rank = 0;
  words.clear();
  order.clear();
  for (int64_t i = 0; i < numDims; ++i) {
    if (extents[i] == 0)
      return;
    if (extents[i] > 1)
      order.push_back(i);
  }
  if (order.empty())
    return;

  // By insertion: stable, without memory, and dims are few and often in order.
  const int64_t *paramStrides = strides + param * numDims;
  auto isOutside = [&](int64_t a, int64_t b) {
    return std::llabs(paramStrides[a]) > std::llabs(paramStrides[b]);
  };
  for (size_t i = 1; i < order.size(); ++i)
    for (size_t k = i; k > 0 && isOutside(order[k], order[k - 1]); --k)
      std::swap(order[k], order[k - 1]);

  // A dim joins the one inside it when each operand steps over exactly that.
  // From here on order[] names, for each remaining dim, its innermost part.
  auto joins = [&](int64_t outer, int64_t inner, int64_t innerExtent) {
    for (int64_t k = 0; k < operands; ++k)
      if (strides[k * numDims + outer] !=
          strides[k * numDims + inner] * innerExtent)
        return false;
    return true;
  };
  size_t first = order.size() - 1;
  words.assign(order.size(), 0);
  words[first] = extents[order[first]];
  for (size_t i = order.size() - 1; i-- > 0;) {
    if (joins(order[i], order[first], words[first])) {
      words[first] *= extents[order[i]];
      continue;
    }
    --first;
    order[first] = order[i];
    words[first] = extents[order[i]];
  }
  words.erase(words.begin(), words.begin() + first);
  order.erase(order.begin(), order.begin() + first);

  rank = int64_t(order.size());
  bool unit = rank == 1;
  for (int64_t k = 0; k < operands; ++k)
    for (int64_t dim : order) {
      words.push_back(strides[k * numDims + dim]);
      unit &= words.back() == 1;
    }
  if (unit) {
    rank = 0;
    words.clear();
  }
}

void RowClass::reserve(int64_t numRows, int64_t rank, int64_t moreChunks) {
  if (rank > 0)
    widen(STEPC_ROW_OPERANDS + operands + rank * (1 + operands));
  size_t rows = owners.size() + numRows;
  reserveAtLeast(table, rows * rowWords);
  reserveAtLeast(owners, rows);
  reserveAtLeast(gaps, rows);
  reserveAtLeast(chunks, numChunks + moreChunks);
  reserveAtLeast(middles, numChunks + moreChunks);
}

/// Gives all rows more words. The words of a row keep their places.
void RowClass::widen(int64_t newWords) {
  if (newWords <= rowWords)
    return;
  std::vector<int64_t> wider(owners.size() * newWords);
  for (size_t row = 0; row < owners.size(); ++row)
    std::copy_n(table.data() + row * rowWords, rowWords,
                wider.data() + row * newWords);
  table = std::move(wider);
  rowWords = newWords;
}

int64_t RowClass::addRow(int64_t tensor, int64_t elements) noexcept {
  numChunks += countChunks(elements);
  if (!gaps.empty()) {
    int64_t row = gaps.back();
    gaps.pop_back();
    owners[row] = tensor;
    return row;
  }
  owners.push_back(tensor);
  table.resize(owners.size() * rowWords);
  return int64_t(owners.size()) - 1;
}

void RowClass::removeRow(int64_t row, int64_t elements) noexcept {
  numChunks -= countChunks(elements);
  owners[row] = -1;
  gaps.push_back(row);
}

void RowClass::setLayout(int64_t row, const RowLayout &layout) noexcept {
  int64_t *words = getRow(row);
  words[STEPC_ROW_RANK] = layout.getRank();
  std::copy(layout.getWords().begin(), layout.getWords().end(),
            words + STEPC_ROW_OPERANDS + operands);
}

void RowClass::listRow(int64_t row, int64_t elements) noexcept {
  for (int64_t start = 0; start < elements; start += chunkElements)
    chunks.push_back({row, start, std::min(chunkElements, elements - start)});
}

int64_t RowClass::weighList(int64_t before) noexcept {
  middles.clear();
  for (const StepcChunk &chunk : chunks) {
    int64_t weight = chunk.length * bytesPerElement + kChunkWeight;
    middles.push_back(before + weight / 2);
    before += weight;
  }
  return before;
}

size_t RowClass::getBytes() const {
  return (table.capacity() + owners.capacity() + gaps.capacity() +
          middles.capacity()) *
             sizeof(int64_t) +
         chunks.capacity() * sizeof(StepcChunk);
}
