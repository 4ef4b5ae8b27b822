//===- RowClass.cpp - the table rows and chunks of one kernel -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/RowClass.h"

#include "core/Fault.h"
#include "core/Reserve.h"
#include "core/StateCodes.h"

#include <algorithm>

using namespace stepc;

/// A row whose operands and workspace have more bytes is shared by all workers;
/// one that has fewer stays in the second-level cache of one core, 1 to 2 MiB
/// today, from one traversal to the next, and needs nobody else.
static constexpr int64_t kLargeBytes = 1 << 20;
/// A row of fewer chunks is not worth sharing.
static constexpr int64_t kLargeChunks = 4;

/// Small rows are taken together until they have as many bytes: calls cost
/// little then, and the line is still cut fine enough.
static constexpr int64_t kBatchBytes = 256 * 1024;

RowClass::RowClass(const Variant &variant, int64_t chunkElements,
                   std::vector<StateCodes> *codes)
    : variant(variant), chunkElements(chunkElements),
      whole(variant.takesRows()), tiles(variant.space == Space::Tiles),
      products(variant.hasProducts()), handsOver(variant.handsOver()),
      operandsWord(tiles ? STEPC_TILE_OPERANDS(variant.roles.numDims)
                         : STEPC_ROW_OPERANDS),
      fixedWords(operandsWord + int64_t(variant.operands.size()) +
                 int64_t(variant.workspace.size())),
      rowWords(fixedWords), codes(codes) {}

RowSize RowClass::getSize(const TileShape &shape) const {
  RowSize size;
  size.elements = shape.countElements();
  if (!tiles) {
    size.units = size.elements;
    size.unitsPerChunk = chunkElements;
    return size;
  }
  size.units = shape.countTiles();
  int64_t tile = std::min<int64_t>(shape.getRows(), STEPC_ROW_LEAF) *
                 std::min<int64_t>(shape.getColumns(), STEPC_TILE_COLUMNS);
  size.unitsPerChunk =
      together
          ? 1
          : std::max<int64_t>(1, chunkElements / std::max<int64_t>(tile, 1));
  size.workspace = getWorkspaceBytes(variant, shape, together);
  if (together) {
    size.handed = stepc::getBytes(variant, shape, BufferUse::Handed);
    size.routine = stepc::getBytes(variant, shape, BufferUse::Routine);
    if (size.handed)
      size.handedMatrices =
          shape.countRows() / std::max<int64_t>(shape.getRows(), 1);
  }
  return size;
}

int64_t RowClass::getFootprint(const RowSize &size) const {
  return size.elements * variant.getFootprint() + size.workspace;
}

bool RowClass::isLarge(const RowSize &size) const {
  return (whole || (tiles && size.coded)) && !together && !products &&
         getFootprint(size) > kLargeBytes && size.countChunks() >= kLargeChunks;
}

/// A batch of several rows has no more than kBatchBytes of footprints and item
/// weights.
int64_t RowClass::getMostOfBatch(const RowSize &size, int64_t rowBytes) const {
  int64_t weight = getFootprint(size) + kItemWeight;
  bool alone = !(whole || (tiles && size.coded)) || weight > kBatchBytes;
  return alone
             ? rowBytes
             : int64_t(static_cast<__int128>(rowBytes) * kBatchBytes / weight);
}

int64_t RowClass::getBatchWorkspace(int64_t largest, int64_t total) {
  return std::max(largest, std::min(total, kBatchBytes));
}

void RowClass::reserve(int64_t moreRows, int64_t rank, int64_t moreChunks) {
  if (rank > 0)
    widen(fixedWords + rank * (1 + int64_t(variant.operands.size())));
  size_t total = size_t(numRows + moreRows);
  size_t totalChunks = size_t(numChunks + moreChunks);
  reserveAtLeast(table, total * rowWords);
  reserveAtLeast(gaps, total);
  reserveAtLeast(rowCodes, total);
  reserveAtLeast(rowPlaces, total);
  reserveAtLeast(chunks, totalChunks);
  reserveAtLeast(elementsBefore, totalChunks + 1);
  reserveAtLeast(rows, total + 1);
  if (together && tiles)
    reserveAtLeast(finishes, total);
  // With codes rows of tiles are taken one by one.
  if (!whole && !(tiles && codes))
    return;
  reserveAtLeast(batches, total + 1);
  reserveAtLeast(large, total);
}

/// Gives all rows more words. The words of a row keep their places.
void RowClass::widen(int64_t newWords) {
  if (newWords <= rowWords)
    return;
  std::vector<int64_t> wider(numRows * newWords);
  for (int64_t row = 0; row < numRows; ++row)
    std::copy_n(table.data() + row * rowWords, rowWords,
                wider.data() + row * newWords);
  table = std::move(wider);
  rowWords = newWords;
}

int64_t RowClass::addRow(const RowSize &size) noexcept {
  numChunks += size.countChunks();
  if (!gaps.empty()) {
    int64_t row = gaps.back();
    gaps.pop_back();
    return row;
  }
  table.resize(size_t(++numRows) * rowWords);
  return numRows - 1;
}

void RowClass::removeRow(int64_t row, const RowSize &size) noexcept {
  numChunks -= size.countChunks();
  gaps.push_back(row);
}

size_t RowClass::getRowBytes(int64_t rank) const {
  int64_t words = rank * (1 + int64_t(variant.operands.size()));
  return size_t(fixedWords + words) * sizeof(int64_t);
}

void RowClass::setCodes(int64_t row, RowCodes own) noexcept {
  if (own.count == 0 && rowCodes.empty())
    return;
  rowCodes.resize(size_t(numRows));
  rowCodes[size_t(row)] = own;
  whole |= tiles;
}

void RowClass::setPlaces(int64_t row, RowPlaces own) noexcept {
  if (own.count == 0 && rowPlaces.empty())
    return;
  rowPlaces.resize(size_t(numRows));
  rowPlaces[size_t(row)] = own;
}

void RowClass::setLayout(int64_t row, const RowLayout &layout) noexcept {
  int64_t *words = getRow(row);
  words[STEPC_ROW_RANK] = layout.getRank();
  std::copy(layout.getWords().begin(), layout.getWords().end(),
            words + fixedWords);
}

void RowClass::clearList() noexcept {
  chunks.clear();
  elementsBefore.clear();
  finishes.clear();
  rows.clear();
  batches.clear();
  large.clear();
  listedElements = listedWorkspace = listedHanded = batchedElements =
      batchedRows = 0;
  batchOpen = false;
}

void RowClass::listRow(int64_t row, const RowSize &size) noexcept {
  // The finishes of an empty tensor run: its statistics are 0.
  if (size.units == 0 && !tiles)
    return;
  rows.push_back({row, int64_t(chunks.size())});
  int64_t perUnit = size.units ? size.elements / size.units : 0;
  int64_t units = size.units;
  if (STEPC_FAULT("engine-last-unit-missing") && units > 1)
    --units;
  for (int64_t start = 0; start < units; start += size.unitsPerChunk) {
    elementsBefore.push_back(listedElements + start * perUnit);
    chunks.push_back({row, start, std::min(size.unitsPerChunk, units - start)});
  }
  listedElements += size.elements;
  if (together && tiles) {
    placeWorkspace(row, listedWorkspace);
    listedWorkspace += size.workspace;
    if (handsOver)
      placeHanded(row);
    listedHanded += size.handed;
    finishes.push_back({row, 0, 0});
  } else if (whole) {
    listWhole(row, size);
  }
}

/// Puts the row that was listed last into a batch, or among the large ones.
void RowClass::listWhole(int64_t row, const RowSize &size) noexcept {
  int64_t index = int64_t(rows.size()) - 1;
  if (isLarge(size)) {
    batchOpen = false;
    large.push_back(index);
    placeWorkspace(row, 0);
    return;
  }
  int64_t bytes = getFootprint(size) + kItemWeight;
  if (batchOpen && (batchBytes + bytes > kBatchBytes ||
                    STEPC_FAULT("control-batches-of-one")))
    batchOpen = false;
  if (!batchOpen) {
    batches.push_back({index, index, batchedElements, batchedRows});
    batchOpen = true;
    batchBytes = batchWorkspace = 0;
  }
  placeWorkspace(row, STEPC_FAULT("engine-workspace-of-another-tensor")
                          ? 0
                          : batchWorkspace);
  batchBytes += bytes;
  batchWorkspace += size.workspace;
  batchedElements += size.elements;
  ++batchedRows;
  batches.back().endRow = index + 1;
}

/// Buffers that are not live lie side by side from `offset` on. An engine that
/// works on rows together has memory of its own for what is decoded.
void RowClass::placeWorkspace(int64_t row, int64_t offset) noexcept {
  if (tiles)
    offset = placeBuffers(row, offset);
  if (together)
    return;
  RowCodes own = getCodes(row);
  for (int32_t c = own.first; c < own.first + own.count; ++c) {
    StateCodes &state = (*codes)[size_t(c)];
    if (state.kept)
      continue;
    state.scratch = uintptr_t(offset);
    if (!STEPC_FAULT("codes-in-one-place"))
      offset += StateCodes::getScratchBytes(state.elements);
  }
}

int64_t RowClass::placeBuffers(int64_t row, int64_t offset) noexcept {
  int64_t *words = getRow(row);
  TileShape shape = loadTileShape(variant.roles, words);
  int64_t *next = words + operandsWord + variant.operands.size();
  for (const WorkspaceBuffer &buffer : variant.workspace) {
    int64_t &word = *next++;
    if (!isInWorkspace(buffer, together))
      continue;
    word = offset;
    offset += getBufferBytes(buffer, shape);
  }
  return offset;
}

/// What a row hands over lies behind that of the rows listed before it; its
/// record has the row's number.
void RowClass::placeHanded(int64_t row) noexcept {
  int64_t *words = getRow(row);
  TileShape shape = loadTileShape(variant.roles, words);
  int64_t *next = words + operandsWord + variant.operands.size();
  auto address = int64_t(matrices) + listedHanded;
  for (const WorkspaceBuffer &buffer : variant.workspace) {
    int64_t &word = *next++;
    if (buffer.use == BufferUse::Record)
      word =
          int64_t(records) + row * STEPC_CALL_WORDS * int64_t(sizeof(int64_t));
    if (buffer.use != BufferUse::Handed)
      continue;
    word = address;
    address += getBufferBytes(buffer, shape);
  }
}

void RowClass::finishList() noexcept {
  batchOpen = false;
  if (rows.empty())
    return;
  elementsBefore.push_back(listedElements);
  if (whole)
    batches.push_back({int64_t(rows.size()), int64_t(rows.size()),
                       batchedElements, batchedRows});
  rows.push_back({-1, int64_t(chunks.size())});
}

RowList RowClass::getList() const noexcept {
  RowList list = {};
  list.call = {table.data(), rowWords, chunks.data(), nullptr};
  list.tableWords = int64_t(table.size());
  list.rows = rows.data();
  list.numRows = int64_t(rows.size()) - 1;
  list.batches = batches.data();
  list.numBatches = std::max<int64_t>(0, int64_t(batches.size()) - 1);
  list.large = large.data();
  list.numLarge = int64_t(large.size());
  list.elementsBefore = elementsBefore.data();
  list.numChunks = int64_t(chunks.size());
  list.finishes = finishes.data();
  list.numFinishes = int64_t(finishes.size());
  list.rowCodes = rowCodes.empty() ? nullptr : rowCodes.data();
  list.codes = codes ? codes->data() : nullptr;
  list.rowPlaces = rowPlaces.empty() ? nullptr : rowPlaces.data();
  return list;
}

size_t RowClass::getBytes() const {
  return (table.capacity() + gaps.capacity() + elementsBefore.capacity() +
          large.capacity()) *
             sizeof(int64_t) +
         (chunks.capacity() + finishes.capacity()) * sizeof(StepcChunk) +
         rows.capacity() * sizeof(ListedRow) +
         batches.capacity() * sizeof(Batch) +
         rowCodes.capacity() * sizeof(RowCodes) +
         rowPlaces.capacity() * sizeof(RowPlaces);
}
