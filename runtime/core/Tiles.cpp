//===- Tiles.cpp - tensors as tiles, and their workspace ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Tiles.h"

#include "core/Fault.h"
#include "core/Memory.h"
#include "stepc/kernel_abi.h"

#include <algorithm>
#include <new>
#include <utility>

using namespace stepc;

static int64_t divideUp(int64_t size, int64_t by) {
  return (size + by - 1) / by;
}

TileRoles::TileRoles(const Dims &dims, int64_t numBound) {
  numDims += numBound;
  if (dims.empty() || dims[0] == "*")
    return;
  numParamDims = int64_t(dims.size());
  numDims = numParamDims + numBound;
  lane = -1;
  for (int64_t i = 0; i < numParamDims; ++i) {
    const std::string &dim = dims[size_t(i)];
    if (dim == "1" || dim.rfind("...", 0) == 0)
      continue;
    row = lane;
    lane = i;
  }
  lane = std::max<int64_t>(lane, 0);
  if (STEPC_FAULT("engine-rows-and-columns-swapped") && row >= 0)
    std::swap(row, lane);
}

int64_t TileShape::countRows() const {
  if (begin == end)
    return 0;
  return (end - 1) / getColumns() - begin / getColumns() + 1;
}

int64_t TileShape::countBlocks() const {
  if (begin == end)
    return 0;
  int64_t rows = getRows(), perItem = divideUp(rows, STEPC_ROW_LEAF);
  auto getBlock = [&](int64_t element) {
    int64_t row = element / getColumns();
    return row / rows * perItem + row % rows / STEPC_ROW_LEAF;
  };
  bool floor = STEPC_FAULT("shard-blocks-floored");
  return getBlock(end - 1) - getBlock(begin) + (floor ? 0 : 1);
}

int64_t TileShape::countTiles() const {
  return countBlocks() * divideUp(getColumns(), STEPC_TILE_COLUMNS);
}

TileExtents stepc::getTileExtents(const Dims &dims, const int64_t *extents,
                                  int64_t rank) {
  TileExtents result = {};
  bool leading = !dims.empty() && dims[0].rfind("...", 0) == 0;
  int64_t single =
      dims.empty() || dims[0] == "*" ? 0 : int64_t(dims.size()) - leading;
  int64_t next = 0;
  if (leading || single == 0) {
    result[0] = 1;
    for (int64_t i = 0; i < rank - single; ++i)
      result[0] *= extents[i];
    next = 1;
  }
  for (int64_t i = 0; i < single; ++i)
    result[size_t(next++)] = extents[rank - single + i];
  return result;
}

static int64_t multiply(const TileExtents &extents, int64_t numDims) {
  int64_t product = 1;
  for (int64_t i = 0; i < numDims; ++i)
    product *= extents[size_t(i)];
  return product;
}

/// A rule of one dim sees a flat range as a vector: nothing else depends on
/// where it lies.
TileShape stepc::getTileShape(const Dims &dims, const TensorLayout &layout,
                              const int64_t *extents, int64_t rank) {
  TileShape shape;
  shape.roles = TileRoles(dims);
  shape.whole =
      getTileExtents(dims, layout.shape.data(), int64_t(layout.shape.size()));
  if (layout.flat && dims.size() > 1) {
    shape.part = shape.whole;
    shape.begin = layout.begin;
    shape.end = layout.end - (STEPC_FAULT("shard-range-short") ? 1 : 0);
    return shape;
  }
  shape.part = getTileExtents(layout.flat ? Dims{"*"} : dims, extents, rank);
  shape.end = multiply(shape.part, shape.roles.numParamDims);
  return shape;
}

void stepc::addBoundExtents(const std::vector<int64_t> &extents,
                            TileShape &shape) {
  for (int64_t extent : extents) {
    size_t index = size_t(shape.roles.numDims++);
    shape.part[index] = shape.whole[index] = extent;
  }
}

void stepc::storeTileShape(const TileShape &shape, int64_t *words) {
  int64_t numDims = shape.roles.numDims;
  std::copy_n(shape.part.begin(), numDims, words + STEPC_TILE_EXTENTS);
  std::copy_n(shape.whole.begin(), numDims, words + STEPC_TILE_WHOLE(numDims));
  words[STEPC_TILE_BEGIN(numDims)] = shape.begin;
  words[STEPC_TILE_END(numDims)] = shape.end;
}

TileShape stepc::loadTileShape(const TileRoles &roles, const int64_t *words) {
  TileShape shape;
  shape.roles = roles;
  int64_t numDims = roles.numDims;
  std::copy_n(words + STEPC_TILE_EXTENTS, numDims, shape.part.begin());
  std::copy_n(words + STEPC_TILE_WHOLE(numDims), numDims, shape.whole.begin());
  shape.begin = words[STEPC_TILE_BEGIN(numDims)];
  shape.end = words[STEPC_TILE_END(numDims)];
  return shape;
}

static int64_t getFactor(const Factor &factor, const TileShape &shape) {
  switch (factor.kind) {
  case Factor::Kind::Dim:
    return divideUp(shape.part[size_t(factor.dim)], factor.per);
  case Factor::Kind::RangeRows:
    return shape.countRows();
  case Factor::Kind::RangeBlocks:
    return shape.countBlocks();
  }
  return 0;
}

static int64_t multiplySize(const WorkspaceBuffer &buffer,
                            const TileShape &shape, int64_t entryBytes) {
  int64_t bytes = entryBytes;
  for (const Factor &factor : buffer.size)
    if (__builtin_mul_overflow(bytes, getFactor(factor, shape), &bytes) ||
        bytes > (int64_t(1) << 60))
      throw std::bad_alloc();
  return bytes;
}

int64_t stepc::getBufferBytes(const WorkspaceBuffer &buffer,
                              const TileShape &shape) {
  return int64_t(roundUpToLine(multiplySize(buffer, shape, buffer.bytes)));
}

int64_t stepc::getBufferEntries(const WorkspaceBuffer &buffer,
                                const TileShape &shape) {
  return multiplySize(buffer, shape, 1);
}

/// The bytes of the buffers that `counts` says so of.
template <typename Counts>
static int64_t addBytes(const Variant &variant, const TileShape &shape,
                        Counts &&counts) {
  int64_t bytes = 0;
  for (const WorkspaceBuffer &buffer : variant.workspace)
    if (counts(buffer) &&
        __builtin_add_overflow(bytes, getBufferBytes(buffer, shape), &bytes))
      throw std::bad_alloc();
  return bytes;
}

int64_t stepc::getLiveBytes(const Variant &variant, const TileShape &shape) {
  return addBytes(variant, shape, [](const WorkspaceBuffer &buffer) {
    return buffer.live && !buffer.crosses;
  });
}

bool stepc::isInWorkspace(const WorkspaceBuffer &buffer, bool together) {
  switch (buffer.use) {
  case BufferUse::All:
    return !buffer.live;
  case BufferUse::Packed:
  case BufferUse::Routine:
    return !together;
  case BufferUse::Record:
  case BufferUse::Handed:
    return false;
  }
  return false;
}

int64_t stepc::getWorkspaceBytes(const Variant &variant, const TileShape &shape,
                                 bool together) {
  return addBytes(variant, shape, [&](const WorkspaceBuffer &buffer) {
    return isInWorkspace(buffer, together);
  });
}

int64_t stepc::getBytes(const Variant &variant, const TileShape &shape,
                        BufferUse use) {
  return addBytes(variant, shape, [&](const WorkspaceBuffer &buffer) {
    return buffer.use == use;
  });
}

int64_t stepc::getKeptBytes(const Variant &variant, const TileShape &shape,
                            bool buffers) {
  if (variant.space != Space::Tiles)
    return 0;
  auto bytes =
      int64_t(roundUpToLine(size_t(variant.tensorSlots) * sizeof(double)));
  if (buffers &&
      __builtin_add_overflow(bytes, getLiveBytes(variant, shape), &bytes))
    throw std::bad_alloc();
  return bytes;
}
