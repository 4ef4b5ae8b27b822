//===- statistics.c - kernels of several phases, in C ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Three optimizers of the tiles space, as docs/statistics.md has it, on f32:
//
//   lamb    [*], one segment: a step as long as the parameter
//   factor  [...b, n, m], one segment: second moments of rows and columns
//   clip    [*], three segments: statistics of the model and of groups, a
//           round that may skip, live memory, a finish that begins a segment
//
// support/TileReference.cpp says the same in plain loops over whole arrays.
//
//===----------------------------------------------------------------------===//

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

INLINE Tile getTile(const int64_t *words, int64_t index) {
  int64_t n = words[STEPC_TILE_N], m = words[STEPC_TILE_M];
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
  int64_t operands, buffers;
  char *workspace;
} Row;

INLINE Row getRow(const StepcCall *call, int64_t row, int64_t operands,
                  int64_t buffers) {
  const int64_t *words = call->table + row * call->rowWords;
  return (Row){words,
               (const double *)words[STEPC_ROW_SCALARS],
               (double *)words[STEPC_TILE_SLOTS],
               operands,
               buffers,
               call->workspace};
}

INLINE double *getBuffer(const Row *row, int64_t buffer) {
  int64_t word = row->words[STEPC_TILE_OPERANDS + row->operands + buffer];
  return (double *)(row->workspace + word);
}

INLINE double *getLiveBuffer(const Row *row, int64_t buffer) {
  return (double *)row->words[STEPC_TILE_OPERANDS + row->operands + buffer];
}

INLINE float *getDense(const Row *row, int64_t operand) {
  return (float *)row->words[STEPC_TILE_OPERANDS + operand];
}

// Element `at`, in logical order, of an operand of the parameter's dims.
INLINE float *getElement(const Row *row, int64_t operand, int64_t at,
                         int strided) {
  float *base = getDense(row, operand);
  if (!strided)
    return base + at;
  int64_t rank = row->words[STEPC_ROW_RANK];
  const int64_t *extents =
      row->words + STEPC_TILE_OPERANDS + row->operands + row->buffers;
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

#define FOR_TILES(call, begin, end, OPERANDS, BUFFERS)                         \
  for (int64_t i = (begin); i < (end); ++i)                                    \
    for (int64_t t = 0; t < (call)->chunks[i].length; ++t)                     \
      for (Row row = getRow(call, (call)->chunks[i].row, OPERANDS, BUFFERS),   \
               *once = &row;                                                   \
           once; once = 0)                                                     \
        for (Tile tile = getTile(row.words, (call)->chunks[i].start + t),      \
                  *one = &tile;                                                \
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

#define BOTH(NAME)                                                             \
  EXPORT void NAME(const StepcCall *call, int64_t begin, int64_t end) {        \
    NAME##_body(call, begin, end, 0);                                          \
  }                                                                            \
  EXPORT void NAME##_strided(const StepcCall *call, int64_t begin,             \
                             int64_t end) {                                    \
    NAME##_body(call, begin, end, 1);                                          \
  }

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
  FOR_TILES(call, begin, end, 3, 2) {
    for (int64_t x = tile.column; x < tile.endColumn; ++x) {
      float *moment = getElement(&row, 2, x, strided);
      float kept = 0.9f * *moment;
      *moment = kept + 0.1f * *getElement(&row, 1, x, strided);
    }
#define SQUARE(v) ((double)(v) * (double)(v))
    SUM_LEAVES(0, SQUARE(*getElement(&row, 0, x, strided)))
    SUM_LEAVES(1, SQUARE(getLambUpdate(&row, x, strided)))
  }
}
BOTH(lamb_phase0)

EXPORT void lamb_finish0(const StepcCall *call, int64_t index) {
  Row row = getRow(call, index, 3, 2);
  int64_t leaves = divideUp(row.words[STEPC_TILE_M], STEPC_LEAF);
  double weight = __builtin_sqrt(foldPairs(getBuffer(&row, 0), 1, leaves));
  double update = __builtin_sqrt(foldPairs(getBuffer(&row, 1), 1, leaves));
  row.slots[0] = weight;
  row.slots[1] = update;
  row.slots[2] = (weight == 0.0 ? 1.0 : weight) / update;
  row.slots[3] = update == 0.0;
}

INLINE void lamb_phase1_body(const StepcCall *call, int64_t begin, int64_t end,
                             int strided) {
  FOR_TILES(call, begin, end, 3, 2) {
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
  FOR_TILES(call, begin, end, 4, 2) {
    int64_t n = row.words[STEPC_TILE_N], m = row.words[STEPC_TILE_M];
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
  Row row = getRow(call, index, 4, 2);
  int64_t b = row.words[STEPC_TILE_B], n = row.words[STEPC_TILE_N],
          m = row.words[STEPC_TILE_M];
  int64_t leaves = divideUp(m, STEPC_LEAF),
          blocks = divideUp(n, STEPC_ROW_LEAF);
  for (int64_t y = 0; y < b * n; ++y) {
    double sum = foldPairs(getBuffer(&row, 0) + y * leaves, 1, leaves);
    float mean = (float)(sum / (double)m);
    float *state = getDense(&row, 2) + y;
    *state = 0.5f * *state + 0.5f * mean;
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
  FOR_TILES(call, begin, end, 4, 2) {
    int64_t n = row.words[STEPC_TILE_N], m = row.words[STEPC_TILE_M];
    for (int64_t y = tile.row; y < tile.endRow; ++y)
      for (int64_t x = tile.column; x < tile.endColumn; ++x) {
        int64_t at = (tile.batch * n + y) * m + x;
        float second = getDense(&row, 2)[tile.batch * n + y] *
                       getDense(&row, 3)[tile.batch * m + x];
        float denominator = __builtin_sqrtf(second + 0.001f);
        float update = *getElement(&row, 1, at, strided) / denominator;
        update = (float)row.scalars[0] * update;
        *getElement(&row, 0, at, strided) -= update;
      }
  }
}
BOTH(factor_phase1)

//===----------------------------------------------------------------------===//
// clip: hypers lr, max_norm; scalars scale (model, always), d (group), steps
// (model); statistics norm2 (model), largest (model, amax), total (group),
// moved (model); results coefficient, norm, d1 (group), factor
//   segment 0: norm2 = sum g g, largest = max |g|, total = sum d |g|
//   round 0: norm = sqrt norm2, coefficient = min(1, max_norm / norm); skips
//     where largest is not finite, halving scale, else scale = scale + 1;
//     steps = steps + 1; d1 = d + 0.5 total, which becomes d
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
  FOR_TILES(call, begin, end, 2, 4) {
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
  Row row = getRow(call, index, 2, 4);
  int64_t leaves = divideUp(row.words[STEPC_TILE_M], STEPC_LEAF);
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
  results[2] = scalars[1] + 0.5 * statistics[2];
  updated[1] = results[2];
  return 0;
}

INLINE void clip_phase1_body(const StepcCall *call, int64_t begin, int64_t end,
                             int strided) {
  FOR_TILES(call, begin, end, 2, 4) {
    float *update = (float *)getLiveBuffer(&row, 3);
    for (int64_t x = tile.column; x < tile.endColumn; ++x)
      update[x] = (float)row.scalars[2] * *getElement(&row, 1, x, strided);
    SUM_LEAVES(0, SQUARE(update[x]))
  }
}
BOTH(clip_phase1)

EXPORT void clip_finish1(const StepcCall *call, int64_t index) {
  Row row = getRow(call, index, 2, 4);
  row.slots[3] = foldPairs(getBuffer(&row, 0), 1,
                           divideUp(row.words[STEPC_TILE_M], STEPC_LEAF));
}

EXPORT int64_t clip_round1(const double *hypers, const int64_t *options,
                           const double *statistics, const double *scalars,
                           double *results, double *updated) {
  (void)hypers, (void)options, (void)scalars, (void)updated;
  results[3] = 1.0 / (1.0 + statistics[3]);
  return 0;
}

EXPORT void clip_finish2(const StepcCall *call, int64_t index) {
  Row row = getRow(call, index, 2, 4);
  row.slots[4] = row.scalars[0] * row.scalars[3];
}

INLINE void clip_phase2_body(const StepcCall *call, int64_t begin, int64_t end,
                             int strided) {
  FOR_TILES(call, begin, end, 2, 4) {
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
