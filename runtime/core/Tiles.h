//===- Tiles.h - tensors as tiles, and their workspace ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_TILES_H
#define STEPC_CORE_TILES_H

#include "core/Layout.h"
#include "core/Manifest.h"

#include <cstdint>

namespace stepc {

/// A tensor as `b` matrices of `n` rows and `m` columns.
struct TileDims {
  int64_t b = 1;
  int64_t n = 1;
  int64_t m = 1;

  int64_t countElements() const { return b * n * m; }
};

/// A tensor as kernels of the tiles space see it, the words of its row: the
/// rank's part, or with a flat range the whole tensor; the whole tensor; and
/// the range, which else is all of the part.
struct TileShape {
  TileDims part;
  TileDims whole;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t countElements() const { return end - begin; }
  /// Rows, of all items, and blocks of rows that the range touches.
  int64_t countRows() const;
  int64_t countBlocks() const;
  /// The tiles of these blocks.
  int64_t countTiles() const;
};

/// The last two extents are n and m where the rule names two dims besides
/// leading ones, m alone where it names one, all elements are m where none.
TileDims getTileDims(const Dims &dims, const int64_t *extents, int64_t rank);

/// Of a tensor that lies as `layout` says, of which the rank has these extents.
TileShape getTileShape(const Dims &dims, const TensorLayout &layout,
                       const int64_t *extents, int64_t rank);

/// The bytes of a buffer, rounded up to 64. Throws std::bad_alloc when no
/// memory has so many.
int64_t getBufferBytes(const WorkspaceBuffer &buffer, const TileShape &shape);

/// The number of entries of a buffer. Throws as well.
int64_t getBufferEntries(const WorkspaceBuffer &buffer, const TileShape &shape);

/// The bytes of all buffers that are live, or of all that are not. Those that
/// cross ranks lie elsewhere.
int64_t getWorkspaceBytes(const Variant &variant, const TileShape &shape,
                          bool live);

} // namespace stepc

#endif // STEPC_CORE_TILES_H
