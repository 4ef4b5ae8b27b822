//===- statistics.c - kernels of several phases, in C ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Optimizers of the tiles space, as docs/statistics.md has it, on f32:
//
//   lamb    [*], one segment: a step as long as the parameter
//   factor  [...b, n, m], one segment: second moments of rows and columns
//
// support/TileReference.cpp says the same in plain loops over whole arrays.
//
//===----------------------------------------------------------------------===//

#include "support/tiles.h"

//===----------------------------------------------------------------------===//
// lamb: hypers lr, decay; state moment
//   u = (moment = 0.9 moment + 0.1 g) + decay p
//   p = p - lr |p| / |u| u, where |u| is not 0; |p| counts as 1 where it is 0
//===----------------------------------------------------------------------===//

EXPORT void lamb_scalars(const double *hypers, const double *results,
                         int64_t count, int64_t fresh, double *row) {
  (void)results, (void)count, (void)fresh;
  row[0] = hypers[0];
  row[1] = hypers[1];
}

INLINE float getLambUpdate(const Row *row, int64_t x, int strided) {
  return *getElement(row, 2, x, strided) +
         (float)row->scalars[1] * *getElement(row, 0, x, strided);
}

INLINE void lamb_phase0_body(const StepcCall *call, int64_t begin, int64_t end,
                             int strided) {
  FOR_TILES(call, begin, end, 1, 3, 2) {
    for (int64_t x = tile.column; x < tile.endColumn; ++x) {
      float *moment = getElement(&row, 2, x, strided);
      float kept = 0.9f * *moment;
      *moment = kept + 0.1f * *getElement(&row, 1, x, strided);
    }
    SUM_LEAVES(0, SQUARE(*getElement(&row, 0, x, strided)))
    SUM_LEAVES(1, SQUARE(getLambUpdate(&row, x, strided)))
  }
}
BOTH(lamb_phase0)

EXPORT void lamb_finish0(const StepcCall *call, int64_t index) {
  Row row = getRow(call, index, 1, 3, 2);
  int64_t leaves = divideUp(row.m, STEPC_LEAF);
  double weight = __builtin_sqrt(foldPairs(getBuffer(&row, 0), 1, leaves));
  double update = __builtin_sqrt(foldPairs(getBuffer(&row, 1), 1, leaves));
  row.slots[0] = weight;
  row.slots[1] = update;
  row.slots[2] = (weight == 0.0 ? 1.0 : weight) / update;
  row.slots[3] = update == 0.0;
}

INLINE void lamb_phase1_body(const StepcCall *call, int64_t begin, int64_t end,
                             int strided) {
  FOR_TILES(call, begin, end, 1, 3, 2) {
    float rate = (float)(row.scalars[0] * row.slots[2]);
    for (int64_t x = tile.column; x < tile.endColumn; ++x) {
      float update = rate * getLambUpdate(&row, x, strided);
      *getElement(&row, 0, x, strided) -= update;
    }
  }
}
BOTH(lamb_phase1)

//===----------------------------------------------------------------------===//
// factor: hyper lr; states rows [...b, n, 1] and columns [...b, 1, m]
//   rows = 0.5 rows + 0.5 mean(g g over m), columns likewise over n
//   p = p - lr g / sqrt(rows columns + 0.001)
//===----------------------------------------------------------------------===//

EXPORT void factor_scalars(const double *hypers, const double *results,
                           int64_t count, int64_t fresh, double *row) {
  (void)results, (void)count, (void)fresh;
  row[0] = hypers[0];
}

INLINE void factor_phase0_body(const StepcCall *call, int64_t begin,
                               int64_t end, int strided) {
  FOR_TILES(call, begin, end, 3, 4, 2) {
    int64_t n = row.n, m = row.m;
    int64_t leaves = divideUp(m, STEPC_LEAF);
    double *columns = getBuffer(&row, 1);
    columns +=
        (tile.batch * divideUp(n, STEPC_ROW_LEAF) + tile.row / STEPC_ROW_LEAF) *
        m;
    for (int64_t x = tile.column; x < tile.endColumn; ++x)
      columns[x] = 0.0;
    for (int64_t y = tile.row; y < tile.endRow; ++y) {
      int64_t at = (tile.batch * n + y) * m;
      double *rows = getBuffer(&row, 0) + (tile.batch * n + y) * leaves;
      for (int64_t leaf = tile.column; leaf < tile.endColumn;
           leaf += STEPC_LEAF) {
        double lanes[STEPC_LANES] = {0};
        for (int64_t x = leaf; x < minimum(leaf + STEPC_LEAF, tile.endColumn);
             ++x) {
          double square = SQUARE(*getElement(&row, 1, at + x, strided));
          lanes[(x - leaf) % STEPC_LANES] += square;
          columns[x] += square;
        }
        rows[leaf / STEPC_LEAF] = foldLanes(lanes);
      }
    }
  }
}
BOTH(factor_phase0)

EXPORT void factor_finish0(const StepcCall *call, int64_t index) {
  Row row = getRow(call, index, 3, 4, 2);
  int64_t b = row.b, n = row.n, m = row.m;
  int64_t leaves = divideUp(m, STEPC_LEAF),
          blocks = divideUp(n, STEPC_ROW_LEAF);
  for (int64_t y = 0; y < b * n; ++y) {
    double sum = foldPairs(getBuffer(&row, 0) + y * leaves, 1, leaves);
    float mean = (float)(sum / (double)m);
    float *state = getDense(&row, 2) + y;
    *state = 0.5f * *state + 0.5f * mean;
    // Kernels read it from the workspace; later lines lie behind it.
    if (leaves > 0)
      getBuffer(&row, 0)[y] = *state;
  }
  for (int64_t k = 0; k < b; ++k)
    for (int64_t x = 0; x < m; ++x) {
      double sum =
          foldPairs(getBuffer(&row, 1) + k * blocks * m + x, m, blocks);
      float mean = (float)(sum / (double)n);
      float *state = getDense(&row, 3) + k * m + x;
      *state = 0.5f * *state + 0.5f * mean;
    }
}

INLINE void factor_phase1_body(const StepcCall *call, int64_t begin,
                               int64_t end, int strided) {
  FOR_TILES(call, begin, end, 3, 4, 2) {
    int64_t n = row.n, m = row.m;
    for (int64_t y = tile.row; y < tile.endRow; ++y)
      for (int64_t x = tile.column; x < tile.endColumn; ++x) {
        int64_t at = (tile.batch * n + y) * m + x;
        float second = (float)getBuffer(&row, 0)[tile.batch * n + y] *
                       getDense(&row, 3)[tile.batch * m + x];
        float denominator = __builtin_sqrtf(second + 0.001f);
        float update = *getElement(&row, 1, at, strided) / denominator;
        update = (float)row.scalars[0] * update;
        *getElement(&row, 0, at, strided) -= update;
      }
  }
}
BOTH(factor_phase1)
