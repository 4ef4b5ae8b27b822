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

#include "stepc/kernel_abi.h"

#include <array>
#include <cstdint>

namespace stepc {

/// The extents of a rule's dims.
using TileExtents = std::array<int64_t, STEPC_TILE_DIMS_MOST>;

/// A tensor as kernels of the tiles space see it, the words of its row: the
/// rank's part, or with a flat range the whole tensor; the whole tensor; and
/// the range, which else is all of the part.
struct TileShape {
  TileRoles roles;
  TileExtents part = {};
  TileExtents whole = {};
  int64_t begin = 0;
  int64_t end = 0;

  /// Of the part: columns, and rows of an item.
  int64_t getColumns() const { return part[size_t(roles.lane)]; }
  int64_t getRows() const {
    return roles.row < 0 ? 1 : part[size_t(roles.row)];
  }
  int64_t countElements() const { return end - begin; }
  /// Rows, of all items, and blocks of rows that the range touches.
  int64_t countRows() const;
  int64_t countBlocks() const;
  /// The tiles of these blocks.
  int64_t countTiles() const;
};

/// The extents of the rule's dims in a tensor of these: leading ones are one
/// dim, and so are all where the rule names none.
TileExtents getTileExtents(const Dims &dims, const int64_t *extents,
                           int64_t rank);

/// Of a tensor that lies as `layout` says, of which the rank has these extents.
TileShape getTileShape(const Dims &dims, const TensorLayout &layout,
                       const int64_t *extents, int64_t rank);

/// Adds the extents of dims that follow from the others. Such tensors are
/// whole.
void addBoundExtents(const std::vector<int64_t> &extents, TileShape &shape);

/// What is in a row of the table, and back. The row has the words of so many
/// dims.
void storeTileShape(const TileShape &shape, int64_t *words);
TileShape loadTileShape(const TileRoles &roles, const int64_t *words);

/// The bytes of a buffer, rounded up to 64. Throws std::bad_alloc when no
/// memory has so many.
int64_t getBufferBytes(const WorkspaceBuffer &buffer, const TileShape &shape);

/// The number of entries of a buffer. Throws as well.
int64_t getBufferEntries(const WorkspaceBuffer &buffer, const TileShape &shape);

/// The bytes of all buffers that are live. Those that cross ranks lie
/// elsewhere.
int64_t getLiveBytes(const Variant &variant, const TileShape &shape);

/// Whether a buffer that is not live has a place in the workspace, of an engine
/// that works on rows together, which is a device's, or of another one.
bool isInWorkspace(const WorkspaceBuffer &buffer, bool together);
int64_t getWorkspaceBytes(const Variant &variant, const TileShape &shape,
                          bool together);

/// The bytes of the buffers of one use.
int64_t getBytes(const Variant &variant, const TileShape &shape, BufferUse use);

/// The bytes that a tensor keeps between steps, slots and, where it has its
/// `buffers` here, those that are live.
int64_t getKeptBytes(const Variant &variant, const TileShape &shape,
                     bool buffers);

} // namespace stepc

#endif // STEPC_CORE_TILES_H
