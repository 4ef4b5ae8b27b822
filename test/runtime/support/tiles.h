//===- tiles.h - the tiles space for kernels in C -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_SUPPORT_TILES_H
#define STEPC_TEST_SUPPORT_TILES_H

#include "stepc/kernel_abi.h"

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))

// Row `words`, tile `index`: rows [row, endRow) of batch item `batch`, columns
// [column, endColumn).
typedef struct {
  int64_t batch, row, endRow, column, endColumn;
} Tile;

INLINE int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t divideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The extents of [...b, n, m], 3 dims, or of [*], a single one.
INLINE int64_t getB(const int64_t *extents, int64_t dims) {
  return dims == 3 ? extents[0] : 1;
}
INLINE int64_t getN(const int64_t *extents, int64_t dims) {
  return dims == 3 ? extents[1] : 1;
}
INLINE int64_t getM(const int64_t *extents, int64_t dims) {
  return extents[dims - 1];
}

INLINE Tile getTile(const int64_t *words, int64_t dims, int64_t index) {
  int64_t n = getN(words + STEPC_TILE_EXTENTS, dims),
          m = getM(words + STEPC_TILE_EXTENTS, dims);
  int64_t columns = divideUp(m, STEPC_TILE_COLUMNS);
  int64_t rows = divideUp(n, STEPC_ROW_LEAF);
  Tile tile;
  tile.column = index % columns * STEPC_TILE_COLUMNS;
  tile.endColumn = minimum(m, tile.column + STEPC_TILE_COLUMNS);
  tile.row = index / columns % rows * STEPC_ROW_LEAF;
  tile.endRow = minimum(n, tile.row + STEPC_ROW_LEAF);
  tile.batch = index / columns / rows;
  return tile;
}

// A row of the table, its operands and its workspace.
typedef struct {
  const int64_t *words;
  const double *scalars;
  double *slots;
  int64_t dims, operands, buffers;
  // Of what the rank has, and of the whole tensor.
  int64_t b, n, m, wholeB, wholeN, wholeM;
  char *workspace;
} Row;

INLINE Row getRow(const StepcCall *call, int64_t row, int64_t dims,
                  int64_t operands, int64_t buffers) {
  const int64_t *words = call->table + row * call->rowWords;
  const int64_t *part = words + STEPC_TILE_EXTENTS,
                *whole = words + STEPC_TILE_WHOLE(dims);
  return (Row){words,
               (const double *)words[STEPC_ROW_SCALARS],
               (double *)words[STEPC_TILE_SLOTS],
               dims,
               operands,
               buffers,
               getB(part, dims),
               getN(part, dims),
               getM(part, dims),
               getB(whole, dims),
               getN(whole, dims),
               getM(whole, dims),
               call->workspace};
}

INLINE double *getBuffer(const Row *row, int64_t buffer) {
  int64_t word =
      row->words[STEPC_TILE_OPERANDS(row->dims) + row->operands + buffer];
  return (double *)(row->workspace + word);
}

INLINE double *getLiveBuffer(const Row *row, int64_t buffer) {
  return (double *)
      row->words[STEPC_TILE_OPERANDS(row->dims) + row->operands + buffer];
}

INLINE float *getDense(const Row *row, int64_t operand) {
  return (float *)row->words[STEPC_TILE_OPERANDS(row->dims) + operand];
}

// Element `at`, in logical order, of an operand of the parameter's dims.
INLINE float *getElement(const Row *row, int64_t operand, int64_t at,
                         int strided) {
  float *base = getDense(row, operand);
  if (!strided)
    return base + at;
  int64_t rank = row->words[STEPC_ROW_RANK];
  const int64_t *extents = row->words + STEPC_TILE_OPERANDS(row->dims) +
                           row->operands + row->buffers;
  const int64_t *strides = extents + rank * (1 + operand);
  int64_t offset = 0;
  for (int64_t d = rank - 1; d >= 0; --d) {
    offset += at % extents[d] * strides[d];
    at /= extents[d];
  }
  return base + offset;
}

INLINE double foldLanes(double *lanes) {
  for (int64_t width = STEPC_LANES / 2; width >= 1; width /= 2)
    for (int64_t k = 0; k < width; ++k)
      lanes[k] += lanes[k + width];
  return lanes[0];
}

// Neighbours, an odd last one passed on, until one is left.
INLINE double foldPairs(double *leaves, int64_t stride, int64_t count) {
  if (count == 0)
    return 0.0;
  while (count > 1) {
    int64_t half = count / 2;
    for (int64_t i = 0; i < half; ++i)
      leaves[i * stride] =
          leaves[2 * i * stride] + leaves[(2 * i + 1) * stride];
    if (count % 2)
      leaves[half * stride] = leaves[(count - 1) * stride];
    count = half + count % 2;
  }
  return leaves[0];
}

#define FOR_TILES(call, begin, end, DIMS, OPERANDS, BUFFERS)                   \
  for (int64_t i = (begin); i < (end); ++i)                                    \
    for (int64_t t = 0; t < (call)->chunks[i].length; ++t)                     \
      for (Row row = getRow(call, (call)->chunks[i].row, DIMS, OPERANDS,       \
                            BUFFERS),                                          \
               *once = &row;                                                   \
           once; once = 0)                                                     \
        for (Tile                                                              \
                 tile = getTile(row.words, DIMS, (call)->chunks[i].start + t), \
                 *one = &tile;                                                 \
             one; one = 0)

// Sums of an expression in x over the leaves of a tile of one row.
#define SUM_LEAVES(BUFFER, VALUE)                                              \
  for (int64_t leaf = tile.column; leaf < tile.endColumn;                      \
       leaf += STEPC_LEAF) {                                                   \
    double lanes[STEPC_LANES] = {0};                                           \
    for (int64_t x = leaf; x < minimum(leaf + STEPC_LEAF, tile.endColumn);     \
         ++x)                                                                  \
      lanes[(x - leaf) % STEPC_LANES] += (VALUE);                              \
    getBuffer(&row, BUFFER)[leaf / STEPC_LEAF] = foldLanes(lanes);             \
  }

#define SQUARE(v) ((double)(v) * (double)(v))

#define BOTH(NAME)                                                             \
  EXPORT void NAME(const StepcCall *call, int64_t begin, int64_t end) {        \
    NAME##_body(call, begin, end, 0);                                          \
  }                                                                            \
  EXPORT void NAME##_strided(const StepcCall *call, int64_t begin,             \
                             int64_t end) {                                    \
    NAME##_body(call, begin, end, 1);                                          \
  }

#endif // STEPC_TEST_SUPPORT_TILES_H
