//===- share.c - kernels of tensors that ranks share, in C --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// share, [...b, n, m] on f32: hyper lr; state rows [...b, n, 1]; statistics
// norm2 and largest of what each rank has, totals of what all of them have
//   rows = 0.5 rows + 0.5 mean(g g over m), the mean of columns likewise
//   p = p - lr g / (sqrt(rows columns / mean(g g)) + 1 + max |g|)
// One program for all layouts: it asks its row where it lies. Sums are exact as
// long as gradients are small integers, so that every layout has the same bits.
//
//===----------------------------------------------------------------------===//

#include "support/tiles.h"

enum { SHARE_OPERANDS = 3, SHARE_BUFFERS = 4 };

EXPORT void share_scalars(const double *hypers, const double *results,
                          int64_t count, int64_t fresh, double *row) {
  (void)results, (void)count, (void)fresh;
  row[0] = hypers[0];
}

// Integers that order as doubles do, NaN above all.
INLINE int64_t toKey(double value) {
  union {
    double value;
    int64_t bits;
  } both = {value};
  if (value != value)
    return INT64_MAX;
  return both.bits < 0 ? both.bits ^ INT64_MAX : both.bits;
}

INLINE double fromKey(int64_t key) {
  union {
    int64_t bits;
    double value;
  } both = {key < 0 ? key ^ INT64_MAX : key};
  return both.value;
}

EXPORT void share_finish0(const StepcCall *call, int64_t index) {
  Row row = getRow(call, index, 3, SHARE_OPERANDS, SHARE_BUFFERS);
  int64_t b = row.b, n = row.n, m = row.m;
  int64_t begin = row.words[STEPC_TILE_BEGIN(3)],
          end = row.words[STEPC_TILE_END(3)];
  int strided = row.words[STEPC_ROW_RANK] != 0;
  double *rows = getLiveBuffer(&row, 0), *columns = getLiveBuffer(&row, 1);
  for (int64_t i = 0; i < b * n; ++i)
    rows[i] = 0.0;
  for (int64_t i = 0; i < b * m; ++i)
    columns[i] = 0.0;
  double total = 0.0, largest = -__builtin_inf();
  for (int64_t e = begin; e < end; ++e) {
    double g = *getElement(&row, 1, e - begin, strided);
    rows[e / m] += g * g;
    columns[e / m / n * m + e % m] += g * g;
    total += g * g;
    double size = __builtin_fabs(g);
    largest = size > largest || size != size ? size : largest;
  }
  *getLiveBuffer(&row, 2) = total;
  *(int64_t *)getLiveBuffer(&row, 3) = toKey(largest);
  row.slots[0] = total;
  row.slots[1] = largest;
}

EXPORT int64_t share_round0(const double *hypers, const int64_t *options,
                            const double *statistics, const double *scalars,
                            double *results, double *updated) {
  (void)hypers, (void)options, (void)scalars, (void)updated;
  results[0] = statistics[0];
  results[1] = statistics[1];
  return 0;
}

EXPORT void share_finish1(const StepcCall *call, int64_t index) {
  Row row = getRow(call, index, 3, SHARE_OPERANDS, SHARE_BUFFERS);
  int64_t rows = row.b * row.n;
  double m = (double)row.wholeM;
  for (int64_t i = 0; i < rows; ++i) {
    float *state = getDense(&row, 2) + i;
    *state = 0.5f * *state + 0.5f * (float)(getLiveBuffer(&row, 0)[i] / m);
  }
  row.slots[2] = *getLiveBuffer(&row, 2);
  row.slots[3] = fromKey(*(int64_t *)getLiveBuffer(&row, 3));
}

INLINE void share_phase1_body(const StepcCall *call, int64_t chunk,
                              int64_t endChunk, int strided) {
  for (; chunk < endChunk; ++chunk) {
    StepcChunk own = call->chunks[chunk];
    Row row = getRow(call, own.row, 3, SHARE_OPERANDS, SHARE_BUFFERS);
    const int64_t *words = row.words;
    int64_t n = row.n, m = row.m;
    int64_t begin = words[STEPC_TILE_BEGIN(3)], end = words[STEPC_TILE_END(3)];
    int64_t blocks = divideUp(n, STEPC_ROW_LEAF);
    int64_t first = begin / m / n * blocks + begin / m % n / STEPC_ROW_LEAF;
    double count = (double)row.wholeB * (double)row.wholeN * (double)row.wholeM;
    for (int64_t t = own.start; t < own.start + own.length; ++t) {
      int64_t block = first + t / divideUp(m, STEPC_TILE_COLUMNS);
      int64_t column = t % divideUp(m, STEPC_TILE_COLUMNS) * STEPC_TILE_COLUMNS;
      int64_t item = block / blocks, top = block % blocks * STEPC_ROW_LEAF;
      for (int64_t y = top; y < minimum(n, top + STEPC_ROW_LEAF); ++y)
        for (int64_t x = column; x < minimum(m, column + STEPC_TILE_COLUMNS);
             ++x) {
          int64_t e = (item * n + y) * m + x;
          if (e < begin || e >= end)
            continue;
          double columnMean =
              getLiveBuffer(&row, 1)[item * m + x] / (double)row.wholeN;
          double second = (double)getDense(&row, 2)[item * n + y] * columnMean /
                          (row.slots[2] / count);
          double scale = __builtin_sqrt(second) + 1.0 + row.slots[3];
          double update = row.scalars[0] *
                          (double)*getElement(&row, 1, e - begin, strided) /
                          scale;
          *getElement(&row, 0, e - begin, strided) -= (float)update;
        }
    }
  }
}
BOTH(share_phase1)

EXPORT int64_t share_round1(const double *hypers, const int64_t *options,
                            const double *statistics, const double *scalars,
                            double *results, double *updated) {
  (void)hypers, (void)options, (void)scalars, (void)updated;
  results[2] = statistics[2];
  return 0;
}
