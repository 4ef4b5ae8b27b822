//===- kernels.c - a toy optimizer's kernels, in C ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Hyper-parameters lr, momentum, decay; option maximize; states
// momentum_buffer, when momentum is not 0, and second, which begins at 0.5:
//
//   g  = maximize ? -grad : grad
//   m  = momentum * m + g, in the first step g alone
//   s  = s + (g * g - s) * 0.25
//   p  = p * (1 - lr * decay) - lr / (1 + 0.1 * t) * m / (sqrt(s) + 0.001)
//
// support/Reference.cpp says the same in plain loops over whole arrays.
//
//===----------------------------------------------------------------------===//

#include "stepc/kernel_abi.h"

#define EXPORT __attribute__((visibility("default")))

typedef uint16_t bf16;

static inline float load_bf16(bf16 x) {
  union {
    uint32_t bits;
    float value;
  } u = {(uint32_t)x << 16};
  return u.value;
}

static inline bf16 store_bf16(float x) {
  union {
    float value;
    uint32_t bits;
  } u = {x};
  if (x != x)
    return 0x7fc0;
  return (bf16)((u.bits + 0x7fff + ((u.bits >> 16) & 1)) >> 16);
}

static inline float load_float(float x) { return x; }
static inline float store_float(float x) { return x; }
static inline double load_double(double x) { return x; }
static inline double store_double(double x) { return x; }

EXPORT void toy_scalars(const double *hypers, const double *results,
                        int64_t count, int64_t fresh, double *row) {
  (void)results;
  row[0] = hypers[0] / (1.0 + 0.1 * (double)count);
  row[1] = fresh ? 0.0 : hypers[1];
  row[2] = 1.0 - hypers[0] * hypers[2];
}

// Offsets of an element of a strided row: those of index `at` in row-major
// order of the extents.
static inline void locate(const int64_t *extents, const int64_t *strides,
                          int64_t rank, int64_t operands, int64_t at,
                          int64_t *offsets) {
  for (int64_t k = 0; k < operands; ++k)
    offsets[k] = 0;
  for (int64_t d = rank - 1; d >= 0; --d) {
    int64_t i = at % extents[d];
    at /= extents[d];
    for (int64_t k = 0; k < operands; ++k)
      offsets[k] += i * strides[k * rank + d];
  }
}

// One element; `M` is the momentum, or absent.
#define UPDATE(C, SQRT, P, G, SIGN, p, g, s, HAS_M, m)                         \
  do {                                                                         \
    C grad = SIGN load_##G(g);                                                 \
    C first = grad;                                                            \
    if (HAS_M) {                                                               \
      first = (C)row[1] * (m) + grad;                                          \
      (m) = first;                                                             \
    }                                                                          \
    C square = grad * grad;                                                    \
    C delta = square - (s);                                                    \
    delta = delta * (C)0.25;                                                   \
    (s) = (s) + delta;                                                         \
    C denominator = SQRT(s) + (C)0.001;                                        \
    C update = first / denominator;                                            \
    update = update * (C)row[0];                                               \
    C kept = load_##P(p) * (C)row[2];                                          \
    (p) = store_##P(kept - update);                                            \
  } while (0)

#define KERNELS(NAME, P, G, C, SQRT, SIGN, HAS_M)                              \
  EXPORT void NAME(const StepcCall *call, int64_t begin, int64_t end) {        \
    for (int64_t i = begin; i < end; ++i) {                                    \
      StepcChunk chunk = call->chunks[i];                                      \
      const int64_t *words = call->table + chunk.row * call->rowWords;         \
      const double *row = (const double *)words[STEPC_ROW_SCALARS];            \
      P *p = (P *)words[STEPC_ROW_OPERANDS] + chunk.start;                     \
      G *g = (G *)words[STEPC_ROW_OPERANDS + 1] + chunk.start;                 \
      C *s = (C *)words[STEPC_ROW_OPERANDS + 2] + chunk.start;                 \
      C *m = HAS_M ? (C *)words[STEPC_ROW_OPERANDS + 3] + chunk.start : s;     \
      for (int64_t k = 0; k < chunk.length; ++k)                               \
        UPDATE(C, SQRT, P, G, SIGN, p[k], g[k], s[k], HAS_M, m[k]);            \
    }                                                                          \
  }                                                                            \
  EXPORT void NAME##_strided(const StepcCall *call, int64_t begin,             \
                             int64_t end) {                                    \
    enum { operands = 3 + HAS_M };                                             \
    for (int64_t i = begin; i < end; ++i) {                                    \
      StepcChunk chunk = call->chunks[i];                                      \
      const int64_t *words = call->table + chunk.row * call->rowWords;         \
      const double *row = (const double *)words[STEPC_ROW_SCALARS];            \
      int64_t rank = words[STEPC_ROW_RANK];                                    \
      const int64_t *extents = words + STEPC_ROW_OPERANDS + operands;          \
      const int64_t *strides = extents + rank;                                 \
      P *p = (P *)words[STEPC_ROW_OPERANDS];                                   \
      G *g = (G *)words[STEPC_ROW_OPERANDS + 1];                               \
      C *s = (C *)words[STEPC_ROW_OPERANDS + 2];                               \
      C *m = HAS_M ? (C *)words[STEPC_ROW_OPERANDS + 3] : s;                   \
      for (int64_t k = chunk.start; k < chunk.start + chunk.length; ++k) {     \
        int64_t at[4] = {0, 0, 0, 0};                                          \
        locate(extents, strides, rank, operands, k, at);                       \
        UPDATE(C, SQRT, P, G, SIGN, p[at[0]], g[at[1]], s[at[2]], HAS_M,       \
               m[at[3]]);                                                      \
      }                                                                        \
    }                                                                          \
  }

#define SIGNS(NAME, P, G, C, SQRT)                                             \
  KERNELS(NAME##_plain, P, G, C, SQRT, , 0)                                    \
  KERNELS(NAME##_momentum, P, G, C, SQRT, , 1)                                 \
  KERNELS(NAME##_maximize_plain, P, G, C, SQRT, -, 0)                          \
  KERNELS(NAME##_maximize_momentum, P, G, C, SQRT, -, 1)

SIGNS(toy_f32, float, float, float, __builtin_sqrtf)
SIGNS(toy_f64, double, double, double, __builtin_sqrt)
SIGNS(toy_bf16, bf16, bf16, float, __builtin_sqrtf)
SIGNS(toy_bf16_f32, bf16, float, float, __builtin_sqrtf)

EXPORT void toy_idle_finish(const StepcCall *call, int64_t row) {
  (void)call, (void)row;
}

EXPORT void toy_idle(const StepcCall *call, int64_t begin, int64_t end) {
  (void)call, (void)begin, (void)end;
}
