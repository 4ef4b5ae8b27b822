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

int64_t TileDims::countTiles() const {
  return b * divideUp(n, STEPC_ROW_LEAF) * divideUp(m, STEPC_TILE_COLUMNS);
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

static int64_t getFactor(Factor factor, const TileDims &dims) {
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
  }
  return 0;
}

int64_t stepc::getBufferBytes(const WorkspaceBuffer &buffer,
                              const TileDims &dims) {
  int64_t bytes = buffer.bytes;
  for (Factor factor : buffer.size)
    if (__builtin_mul_overflow(bytes, getFactor(factor, dims), &bytes) ||
        bytes > (int64_t(1) << 60))
      throw std::bad_alloc();
  return (bytes + 63) & ~int64_t(63);
}

int64_t stepc::getWorkspaceBytes(const Variant &variant, const TileDims &dims,
                                 bool live) {
  int64_t bytes = 0;
  for (const WorkspaceBuffer &buffer : variant.workspace)
    if (buffer.live == live &&
        __builtin_add_overflow(bytes, getBufferBytes(buffer, dims), &bytes))
      throw std::bad_alloc();
  return bytes;
}
