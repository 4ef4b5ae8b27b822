//===- Tiles.cpp - tensors as tiles, and their workspace ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Tiles.h"

#include "core/Fault.h"
#include "stepc/kernel_abi.h"

#include <new>
#include <utility>

using namespace stepc;

static int64_t divideUp(int64_t size, int64_t by) {
  return (size + by - 1) / by;
}

int64_t TileShape::countRows() const {
  if (begin == end)
    return 0;
  return (end - 1) / part.m - begin / part.m + 1;
}

int64_t TileShape::countBlocks() const {
  if (begin == end)
    return 0;
  int64_t perItem = divideUp(part.n, STEPC_ROW_LEAF);
  auto getBlock = [&](int64_t element) {
    int64_t row = element / part.m;
    return row / part.n * perItem + row % part.n / STEPC_ROW_LEAF;
  };
  bool floor = STEPC_FAULT("shard-blocks-floored");
  return getBlock(end - 1) - getBlock(begin) + (floor ? 0 : 1);
}

int64_t TileShape::countTiles() const {
  return countBlocks() * divideUp(part.m, STEPC_TILE_COLUMNS);
}

TileDims stepc::getTileDims(const Dims &dims, const int64_t *extents,
                            int64_t rank) {
  bool leading = !dims.empty() && dims[0].rfind("...", 0) == 0;
  int64_t named = int64_t(dims.size()) - leading;
  if (named == 0 || dims[0] == "*") {
    TileDims flat;
    for (int64_t i = 0; i < rank; ++i)
      flat.m *= extents[i];
    return flat;
  }
  TileDims tiles;
  tiles.m = extents[rank - 1];
  if (named == 2)
    tiles.n = extents[rank - 2];
  if (STEPC_FAULT("engine-rows-and-columns-swapped"))
    std::swap(tiles.n, tiles.m);
  for (int64_t i = 0; i < rank - named; ++i)
    tiles.b *= extents[i];
  return tiles;
}

/// A rule of one dim sees a flat range as a vector: nothing else depends on
/// where it lies.
TileShape stepc::getTileShape(const Dims &dims, const TensorLayout &layout,
                              const int64_t *extents, int64_t rank) {
  TileShape shape;
  shape.whole =
      getTileDims(dims, layout.shape.data(), int64_t(layout.shape.size()));
  if (layout.flat && dims.size() > 1) {
    shape.part = shape.whole;
    shape.begin = layout.begin;
    shape.end = layout.end - (STEPC_FAULT("shard-range-short") ? 1 : 0);
    return shape;
  }
  shape.part = getTileDims(layout.flat ? Dims{"*"} : dims, extents, rank);
  shape.end = shape.part.countElements();
  return shape;
}

static int64_t getFactor(Factor factor, const TileShape &shape) {
  const TileDims &dims = shape.part;
  switch (factor) {
  case Factor::B:
    return dims.b;
  case Factor::N:
    return dims.n;
  case Factor::M:
    return dims.m;
  case Factor::NL:
    return divideUp(dims.n, STEPC_ROW_LEAF);
  case Factor::ML:
    return divideUp(dims.m, STEPC_LEAF);
  case Factor::N1:
    return divideUp(dims.n, STEPC_LEAF);
  case Factor::B1:
    return divideUp(dims.b, STEPC_LEAF);
  case Factor::R:
    return shape.countRows();
  case Factor::L:
    return shape.countBlocks();
  }
  return 0;
}

static int64_t multiplySize(const WorkspaceBuffer &buffer,
                            const TileShape &shape, int64_t entryBytes) {
  int64_t bytes = entryBytes;
  for (Factor factor : buffer.size)
    if (__builtin_mul_overflow(bytes, getFactor(factor, shape), &bytes) ||
        bytes > (int64_t(1) << 60))
      throw std::bad_alloc();
  return bytes;
}

int64_t stepc::getBufferBytes(const WorkspaceBuffer &buffer,
                              const TileShape &shape) {
  return (multiplySize(buffer, shape, buffer.bytes) + 63) & ~int64_t(63);
}

int64_t stepc::getBufferEntries(const WorkspaceBuffer &buffer,
                                const TileShape &shape) {
  return multiplySize(buffer, shape, 1);
}

int64_t stepc::getWorkspaceBytes(const Variant &variant, const TileShape &shape,
                                 bool live) {
  int64_t bytes = 0;
  for (const WorkspaceBuffer &buffer : variant.workspace)
    if (buffer.live == live && !buffer.crosses &&
        __builtin_add_overflow(bytes, getBufferBytes(buffer, shape), &bytes))
      throw std::bad_alloc();
  return bytes;
}
