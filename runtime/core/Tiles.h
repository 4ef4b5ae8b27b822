//===- Tiles.h - tensors as tiles, and their workspace ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_TILES_H
#define STEPC_CORE_TILES_H

#include "core/Manifest.h"

#include <cstdint>

namespace stepc {

/// A tensor as kernels of the tiles space see it: `b` matrices of `n` rows and
/// `m` columns.
struct TileDims {
  int64_t b = 1;
  int64_t n = 1;
  int64_t m = 1;

  int64_t countTiles() const;
};

/// The last two extents are n and m where the rule names two dims besides
/// leading ones, m alone where it names one, all elements are m where none.
TileDims getTileDims(const Dims &dims, const int64_t *extents, int64_t rank);

/// The bytes of a buffer, rounded up to 64. Throws std::bad_alloc when no
/// memory has so many.
int64_t getBufferBytes(const WorkspaceBuffer &buffer, const TileDims &dims);

/// The same for all buffers that are live, or for all that are not.
int64_t getWorkspaceBytes(const Variant &variant, const TileDims &dims,
                          bool live);

} // namespace stepc

#endif // STEPC_CORE_TILES_H
