//===- StateCodes.cpp - states that are kept as codes -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/StateCodes.h"

#include "core/Fault.h"
#include "core/Status.h"
#include "core/TensorView.h"

#include <algorithm>
#include <utility>

using namespace stepc;

size_t stepc::getRowDim(const std::vector<int64_t> &shape) {
  if (shape.empty())
    return 0;
  size_t dim = shape.size() - 1;
  int64_t elements = shape[dim];
  while (dim > 1 && elements < kCodeBlock)
    elements *= shape[--dim];
  return dim;
}

static int64_t countRow(const std::vector<int64_t> &shape, size_t rowDim) {
  return countElements(shape.data() + rowDim, int64_t(shape.size() - rowDim));
}

bool stepc::canEncode(const std::vector<int64_t> &shape, int64_t least) {
  return shape.size() >= 2 &&
         countElements(shape.data(), int64_t(shape.size())) >= least &&
         countRow(shape, getRowDim(shape)) >= kLeastCodedRow;
}

std::vector<int64_t> stepc::getScaleShape(const std::vector<int64_t> &shape,
                                          size_t rowDim) {
  std::vector<int64_t> scales(shape.begin(), shape.begin() + int64_t(rowDim));
  scales.push_back((countRow(shape, rowDim) + kCodeBlock - 1) / kCodeBlock);
  return scales;
}

std::vector<int64_t> stepc::getCodeShape(const CodeWords &words,
                                         const std::vector<int64_t> &shape,
                                         size_t rowDim) {
  if (words.perWord == 1)
    return shape;
  std::vector<int64_t> codes(shape.begin(), shape.begin() + int64_t(rowDim));
  codes.push_back(words.count(countRow(shape, rowDim)));
  return codes;
}

int64_t StateCodes::getMostOfWindow(int64_t numStates) {
  // Half of a first-level cache, the other half for what has no codes.
  constexpr int64_t kWindowBytes = 16 * 1024;
  int64_t most = kWindowBytes / int64_t(sizeof(float)) / numStates;
  return std::max(kCodeBlock, most / kCodeBlock * kCodeBlock);
}

/// All states of codes of a tensor whose kernels take elements have its rows.
int64_t StateCodes::getWindow(const StateCodes *begin, const StateCodes *end,
                              int64_t first, int64_t last) {
  int64_t most = getMostOfWindow(end - begin);
  const CodeRows &rows = begin->rows;
  const int64_t columns = rows.columns;
  if (!rows.isRegular()) {
    int64_t column = (rows.first + first) % columns;
    // Whole rows, from the begin of one; else up to the end of this one, or to
    // that of a block.
    if (column == 0 && columns <= most)
      most = most / columns * columns;
    else if (most >= columns - column)
      most = columns - column;
    else
      most -= (rows.phase + column + most) % kCodeBlock;
  }
  return std::min(most, last - first);
}

View StateCodes::getCodesView() const {
  return {codes, int64_t(codeShape.size()), codeShape.data(),
          codeStrides.data(), format->words.getBytes()};
}

View StateCodes::getScalesView() const {
  static const int64_t kSideBySide[] = {1};
  return {scales, 1, &numScales, kSideBySide, sizeof(float)};
}

int64_t stepc::countCodedColumns(const StepcBinding &binding,
                                 const std::vector<int64_t> &shape) {
  const int32_t *formats = getFormats(binding);
  if (!formats || !std::any_of(formats, formats + binding.numStates,
                               [](int32_t format) { return format != 0; }))
    return 0;
  return std::max<int64_t>(countRow(shape, getRowDim(shape)), 1);
}

const CodeFormat &stepc::requireFormat(int32_t number,
                                       const std::string &words) {
  const CodeFormat *format = findCodeFormat(number);
  if (!format)
    fail(STEPC_INVALID_ARGUMENT, "%s has format %d, those of codes are 1 to %d",
         words.c_str(), int(number), int(kCodeFormats));
  return *format;
}

DLDataType stepc::getCodesType(const CodeFormat &format) {
  const CodeWords &words = format.words;
  return {uint8_t(words.isSigned ? kDLInt : kDLUInt), uint8_t(words.bits), 1};
}

int64_t StateCodes::getScratchBytes(int64_t elements) {
  constexpr int64_t kLine = 64;
  return (elements * int64_t(sizeof(float)) + kLine - 1) / kLine * kLine;
}

void StateCodes::fill(double value) const {
  if (value == 0.0)
    return;
  constexpr int64_t kAtOnce = 4096;
  const int64_t chunk = getChunk(kAtOnce);
  const std::vector<float> values(size_t(std::min(chunk, elements)),
                                  float(value));
  // Other ranks fill their parts of a block with the same.
  for (int64_t begin = 0; begin < elements; begin += chunk)
    format->encode(rows, begin, std::min(begin + chunk, elements),
                   values.data(), reinterpret_cast<uint8_t *>(codes),
                   reinterpret_cast<float *>(scales));
}

void StateCodes::decode(int64_t begin, int64_t end, float *values) const {
  format->decode(rows, begin, end, reinterpret_cast<const uint8_t *>(codes),
                 reinterpret_cast<const float *>(scales), values);
}

void StateCodes::encode(int64_t begin, int64_t end, const float *values) const {
  if (shared.head == 0 && shared.tail == 0)
    return format->encode(rows, begin, end, values,
                          reinterpret_cast<uint8_t *>(codes),
                          reinterpret_cast<float *>(scales));
  while (begin < end) {
    int64_t row = begin / rows.columns, column = begin % rows.columns;
    int64_t size = std::min(rows.columns - column, end - begin);
    encodeInRow(row, column, column + size, values);
    begin += size;
    values += size;
  }
}

/// Columns [first, last), which are whole blocks of this rank's part.
void StateCodes::encodeInRow(int64_t row, int64_t first, int64_t last,
                             const float *values) const {
  const int64_t begin = std::max(first, shared.head);
  const int64_t end = std::min(last, rows.columns - shared.tail);
  if (shared.head > first)
    shared.keep(row, 0, values);
  if (shared.tail && last > end)
    shared.keep(row, 1, values + (end - first));
  if (begin < end)
    format->encode(rows, row * rows.columns + begin, row * rows.columns + end,
                   values + (begin - first), reinterpret_cast<uint8_t *>(codes),
                   reinterpret_cast<float *>(scales));
}

/// A block of which this rank has a part is encoded as one of that part and an
/// element behind it, which is as large as the largest of all.
bool StateCodes::encodeShared(int64_t first, int64_t last) const noexcept {
  bool alike = true;
  for (int64_t row = first; row < last; ++row)
    for (int end = 0; end < 2; ++end) {
      const int64_t size = shared.getSize(end);
      if (size == 0)
        continue;
      const SharedBlocks::Found found = shared.find(row, end);
      alike &= found.here == found.elsewhere;
      if (!found.here || STEPC_FAULT("cut-codes-not-written"))
        continue;
      const int64_t begin =
          row * rows.columns + (end ? rows.columns - size : 0);
      float values[kCodeBlock];
      uint8_t own[kCodeBlock];
      std::copy_n(shared.getFloats(row, end), size, values);
      values[size] = found.top;
      float *scale = reinterpret_cast<float *>(scales) +
                     rows.countBlocks(begin + size) - 1;
      format->encode({size + 1}, 0, size + 1, values, own, scale);
      std::copy_n(own, format->words.count(size) * format->words.getBytes(),
                  reinterpret_cast<uint8_t *>(codes) +
                      rows.countBytes(format->words, begin));
    }
  shared.forget(first, last);
  return alike;
}

int64_t StateCodes::getShareBegin(int index, int count) const {
  if (index >= count)
    return STEPC_FAULT("codes-share-short") && count > 1 ? elements - 64
                                                         : elements;
  int64_t row = rows.isRegular() ? kCodeBlock : rows.columns;
  int64_t begin = int64_t(static_cast<__int128>(elements) * index / count);
  return begin / row * row;
}

int64_t StateCodes::getChunk(int64_t most) const {
  int64_t row = rows.isRegular() ? kCodeBlock : rows.columns;
  return std::max(row, most / row * row);
}

BlockCut::BlockCut(std::vector<int64_t> shape, std::string name)
    : whole(std::move(shape)), name(std::move(name)), dim(getRowDim(whole)) {
  for (size_t i = dim; i < whole.size(); ++i)
    columns *= whole[i];
}

void BlockCut::refuse(const std::string &words) const {
  fail(STEPC_LAYOUT_UNSUPPORTED,
       "%s is kept as codes in blocks of %lld elements along rows of %lld, and "
       "%s",
       name.c_str(), static_cast<long long>(kCodeBlock),
       static_cast<long long>(columns), words.c_str());
}

/// Refuses columns [begin, end) that are not whole blocks.
void BlockCut::require(int64_t begin, int64_t end) const {
  if (begin % kCodeBlock == 0 && (end % kCodeBlock == 0 || end == columns))
    return;
  refuse("this rank has columns " + std::to_string(begin) + " to " +
         std::to_string(end) +
         " of one, which cuts a block where equal shares do not");
}

static void setShapes(std::vector<int64_t> ofCodes,
                      std::vector<int64_t> ofScales, StateCodes &codes) {
  auto rank = int64_t(ofCodes.size());
  codes.numWords = countElements(ofCodes.data(), rank);
  codes.numScales = countElements(ofScales.data(), int64_t(ofScales.size()));
  codes.codeStrides.assign(ofCodes.size(), 1);
  setRowMajor(ofCodes.data(), rank, codes.codeStrides.data());
  codes.codeShape = std::move(ofCodes);
  codes.scaleShape = std::move(ofScales);
}

void BlockCut::setRange(int64_t begin, int64_t end, StateCodes &codes) const {
  codes.rows = {std::max<int64_t>(columns, 1)};
  codes.elements = end - begin;
  if (begin == end)
    return setShapes({0}, {0}, codes);
  codes.rows.first = begin % columns;
  require(begin % columns, (end - 1) % columns + 1);
  setShapes({codes.rows.countWords(codes.format->words, codes.elements)},
            {codes.rows.countBlocks(codes.elements)}, codes);
}

/// Refuses a part whose rows are no ranges of the whole's.
void BlockCut::requireRanges(const std::vector<int64_t> &part,
                             const std::vector<int64_t> &start) const {
  for (size_t i = dim + 1; i < whole.size(); ++i)
    if (part[i] != whole[i])
      refuse("it is shared out along a dim inside of them");
  if (part[dim] != whole[dim] && start.empty())
    refuse("the layout does not say where this rank's part begins");
}

/// Columns [begin, end) of each row are this rank's.
void BlockCut::setShared(int64_t begin, int64_t end, StateCodes &codes) const {
  SharedBlocks &shared = codes.shared;
  const int64_t phase = begin % kCodeBlock;
  if (phase)
    shared.head = std::min(kCodeBlock - phase, end - begin);
  if (end != columns && end - begin > shared.head)
    shared.tail = end % kCodeBlock;
  shared.firstBlock = begin / kCodeBlock;
  shared.lastBlock = (end - 1) / kCodeBlock;
  codes.rows.phase = phase;
  if (!shared.any())
    require(begin, end);
}

void BlockCut::setBox(const std::vector<int64_t> &part,
                      const std::vector<int64_t> &start,
                      const std::vector<uint64_t> &dimAxes, const Mesh &mesh,
                      StateCodes &codes) const {
  codes.elements = countElements(part.data(), int64_t(part.size()));
  const int64_t row = countRow(part, dim);
  codes.rows = {std::max<int64_t>(row, 1)};
  if (dimAxes.size() == whole.size()) {
    SharedBlocks &shared = codes.shared;
    shared.axes = getCuttingAxes(mesh, dimAxes[dim], whole[dim],
                                 countRow(whole, dim + 1));
    if (codes.format->words.perWord > 1 && shared.any())
      refuse("ranks share rows by other than whole blocks, which " +
             std::string(codes.format->name) + " needs");
    shared.numRanks = mesh.getGroupSize(shared.axes);
    shared.rank = mesh.getGroupRank(shared.axes);
    shared.rows = countElements(part.data(), int64_t(dim));
  }
  if (codes.elements) {
    requireRanges(part, start);
    if (part[dim] != whole[dim]) {
      const int64_t begin = start[dim] * countRow(whole, dim + 1);
      setShared(begin, begin + row, codes);
    }
  }
  std::vector<int64_t> scales(part.begin(), part.begin() + int64_t(dim));
  scales.push_back((codes.rows.phase + row + kCodeBlock - 1) / kCodeBlock);
  setShapes(getCodeShape(codes.format->words, part, dim), std::move(scales),
            codes);
}

std::vector<int64_t> BlockCut::getScalesOf(const std::vector<int64_t> &part,
                                           int64_t index) const {
  const bool any = countElements(part.data(), int64_t(part.size())) != 0;
  const int64_t phase = any ? index % columns % kCodeBlock : 0;
  const int64_t row = countRow(part, dim);
  std::vector<int64_t> scales(part.begin(), part.begin() + int64_t(dim));
  scales.push_back((phase + row + kCodeBlock - 1) / kCodeBlock);
  return scales;
}
