//===- clip.c - kernels of several segments, in C -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An optimizer of the tiles space with statistics of the model and of groups, a
// round that may skip, live memory, and a finish that begins a segment. It is
// in support/TileReference.cpp in plain loops.
//
//===----------------------------------------------------------------------===//

#include "support/tiles.h"

//===----------------------------------------------------------------------===//
// clip: hypers lr, max_norm; scalars scale (model, always), d (group), steps
// (model); statistics norm2 (model), largest (model, amax), total (group),
// moved (model); results coefficient, norm, d1 (group), factor
//   segment 0: norm2 = sum g g, largest = max |g|, total = sum d |g|
//   round 0: norm = sqrt norm2, coefficient = min(1, max_norm / norm); skips
//     where largest is not finite, halving scale, else scale = scale + 1;
//     steps = steps + 1; d1 = d + 0.5 total + 0.125, the new d
//   segment 1: u = coefficient d1 g, moved = sum u u
//   round 1: factor = 1 / (1 + moved)
//   segment 2: the tensor's rate is lr factor; p = p - rate u
//===----------------------------------------------------------------------===//

enum { CLIP_RESULTS = 4 };

EXPORT void clip_scalars0(const double *hypers, const double *results,
                          int64_t count, int64_t fresh, double *row) {
  (void)count, (void)fresh;
  row[0] = hypers[0];
  row[1] = results[CLIP_RESULTS + 1];
}

EXPORT void clip_scalars1(const double *hypers, const double *results,
                          int64_t count, int64_t fresh, double *row) {
  (void)hypers, (void)count, (void)fresh;
  row[2] = results[0] * results[2];
}

EXPORT void clip_scalars2(const double *hypers, const double *results,
                          int64_t count, int64_t fresh, double *row) {
  (void)hypers, (void)count, (void)fresh;
  row[3] = results[3];
}

INLINE double getAbsolute(double x) { return __builtin_fabs(x); }

INLINE void clip_phase0_body(const StepcCall *call, int64_t begin, int64_t end,
                             int strided) {
  FOR_TILES(call, begin, end, 1, 2, 4) {
    SUM_LEAVES(0, SQUARE(*getElement(&row, 1, x, strided)))
    SUM_LEAVES(1,
               row.scalars[1] * getAbsolute(*getElement(&row, 1, x, strided)))
    for (int64_t leaf = tile.column; leaf < tile.endColumn;
         leaf += STEPC_LEAF) {
      double largest = 0.0;
      for (int64_t x = leaf; x < minimum(leaf + STEPC_LEAF, tile.endColumn);
           ++x) {
        double value = getAbsolute(*getElement(&row, 1, x, strided));
        largest = value > largest || value != value ? value : largest;
      }
      getBuffer(&row, 2)[leaf / STEPC_LEAF] = largest;
    }
  }
}
BOTH(clip_phase0)

EXPORT void clip_finish0(const StepcCall *call, int64_t index) {
  Row row = getRow(call, index, 1, 2, 4);
  int64_t leaves = divideUp(row.m, STEPC_LEAF);
  row.slots[0] = foldPairs(getBuffer(&row, 0), 1, leaves);
  row.slots[1] = foldPairs(getBuffer(&row, 1), 1, leaves);
  double largest = -__builtin_inf();
  for (int64_t i = 0; i < leaves; ++i) {
    double value = getBuffer(&row, 2)[i];
    largest = value > largest || value != value ? value : largest;
  }
  row.slots[2] = largest;
}

EXPORT int64_t clip_round0_model(const double *hypers, const int64_t *options,
                                 const double *statistics,
                                 const double *scalars, double *results,
                                 double *updated) {
  (void)options;
  double norm = __builtin_sqrt(statistics[0]);
  double coefficient = hypers[1] / norm;
  int skip = !(statistics[1] - statistics[1] == 0.0);
  results[0] = coefficient < 1.0 ? coefficient : 1.0;
  results[1] = norm;
  updated[0] = skip ? 0.5 * scalars[0] : scalars[0] + 1.0;
  updated[2] = scalars[2] + 1.0;
  return skip;
}

EXPORT int64_t clip_round0_group(const double *hypers, const int64_t *options,
                                 const double *statistics,
                                 const double *scalars, double *results,
                                 double *updated) {
  (void)hypers, (void)options;
  results[2] = scalars[1] + 0.5 * statistics[2] + 0.125;
  updated[1] = results[2];
  return 0;
}

INLINE void clip_phase1_body(const StepcCall *call, int64_t begin, int64_t end,
                             int strided) {
  FOR_TILES(call, begin, end, 1, 2, 4) {
    float *update = (float *)getLiveBuffer(&row, 3);
    for (int64_t x = tile.column; x < tile.endColumn; ++x)
      update[x] = (float)row.scalars[2] * *getElement(&row, 1, x, strided);
    SUM_LEAVES(0, SQUARE(update[x]))
  }
}
BOTH(clip_phase1)

EXPORT void clip_finish1(const StepcCall *call, int64_t index) {
  Row row = getRow(call, index, 1, 2, 4);
  row.slots[3] = foldPairs(getBuffer(&row, 0), 1, divideUp(row.m, STEPC_LEAF));
}

EXPORT int64_t clip_round1(const double *hypers, const int64_t *options,
                           const double *statistics, const double *scalars,
                           double *results, double *updated) {
  (void)hypers, (void)options, (void)scalars, (void)updated;
  results[3] = 1.0 / (1.0 + statistics[3]);
  return 0;
}

EXPORT void clip_finish2(const StepcCall *call, int64_t index) {
  Row row = getRow(call, index, 1, 2, 4);
  row.slots[4] = row.scalars[0] * row.scalars[3];
}

INLINE void clip_phase2_body(const StepcCall *call, int64_t begin, int64_t end,
                             int strided) {
  FOR_TILES(call, begin, end, 1, 2, 4) {
    const float *update = (const float *)getLiveBuffer(&row, 3);
    for (int64_t x = tile.column; x < tile.endColumn; ++x)
      *getElement(&row, 0, x, strided) -= (float)row.slots[4] * update[x];
  }
}
BOTH(clip_phase2)

// f64 parameters of clip, in the elements space of segment 2: p = p - rate g;
// they contribute to no statistic.
EXPORT void clip_elements(const StepcCall *call, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    StepcChunk chunk = call->chunks[i];
    const int64_t *words = call->table + chunk.row * call->rowWords;
    const double *row = (const double *)words[STEPC_ROW_SCALARS];
    double *p = (double *)words[STEPC_ROW_OPERANDS];
    const double *g = (const double *)words[STEPC_ROW_OPERANDS + 1];
    for (int64_t k = chunk.start; k < chunk.start + chunk.length; ++k)
      p[k] -= row[0] * row[3] * g[k];
  }
}
