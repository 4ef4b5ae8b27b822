//===- stream.c - the memory traffic of an AdamW step, and nothing else ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The limit that the benchmark measures against: four arrays are read (three
// for an optimizer of one state), all but one of them are written in place,
// with so little arithmetic that only memory counts. One parallel region a
// pass, each thread a contiguous part.
//
// `distance` is how many cache lines ahead of its use a line is asked for; 0
// leaves it to the processor. Non-temporal stores are not used: the lines are
// in the cache already, and going around it costs 20 %.
//
//===----------------------------------------------------------------------===//

#define _GNU_SOURCE
#include <omp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

enum { LineBytes = 64, LineFloats = 16, LineShorts = 32 };

/* Huge pages where the system grants them; zeroed. NULL when out of memory. */
void *benchAllocate(size_t bytes) {
  const size_t huge = (size_t)2 << 20;
  size_t rounded = (bytes + huge - 1) / huge * huge;
  char *raw = mmap(NULL, rounded + huge, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED)
    return NULL;
  char *aligned = (char *)(((uintptr_t)raw + huge - 1) / huge * huge);
  madvise(aligned, rounded, MADV_HUGEPAGE);
#pragma omp parallel for
  for (size_t i = 0; i < rounded; i += 4096)
    aligned[i] = 0;
  return aligned;
}

void benchSetThreads(int threads) { omp_set_num_threads(threads); }

/* The part of `blocks` blocks that this thread does. */
static void myPart(int64_t blocks, int64_t *begin, int64_t *end) {
  int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
  *begin = blocks * me / threads;
  *end = blocks * (me + 1) / threads;
}

/* Lines `begin` to `end` of a stream; without `second` v is not touched.
   Inlined with a constant, so that no loop asks for it. */
__attribute__((always_inline)) static inline void
linesF32(float *restrict p, const float *restrict g, float *restrict m,
         float *restrict v, int second, int64_t begin, int64_t end,
         int64_t distance) {
  int64_t ahead = distance * LineFloats;
  for (int64_t i = begin * LineFloats; i < end * LineFloats; i += LineFloats) {
    if (distance) {
      __builtin_prefetch(p + i + ahead, 1, 3);
      __builtin_prefetch(g + i + ahead, 0, 3);
      __builtin_prefetch(m + i + ahead, 1, 3);
      if (second)
        __builtin_prefetch(v + i + ahead, 1, 3);
    }
#pragma GCC ivdep
    for (int64_t j = i; j < i + LineFloats; ++j) {
      m[j] = m[j] + g[j];
      if (second)
        v[j] = v[j] + g[j];
      p[j] = p[j] + g[j];
    }
  }
}

/* `n` is a multiple of 16; p, m and v are written. v may be NULL: 20 bytes an
   element instead of 28. */
void benchStreamF32(float *restrict p, const float *restrict g,
                    float *restrict m, float *restrict v, int64_t n,
                    int64_t distance) {
#pragma omp parallel
  {
    int64_t begin, end;
    myPart(n / LineFloats, &begin, &end);
    if (v)
      linesF32(p, g, m, v, 1, begin, end, distance);
    else
      linesF32(p, g, m, v, 0, begin, end, distance);
  }
}

__attribute__((always_inline)) static inline void
linesBF16(uint16_t *restrict p, const uint16_t *restrict g, float *restrict m,
          float *restrict v, int second, int64_t begin, int64_t end,
          int64_t distance) {
  int64_t ahead = distance * LineShorts;
  for (int64_t i = begin * LineShorts; i < end * LineShorts; i += LineShorts) {
    if (distance) {
      __builtin_prefetch(p + i + ahead, 1, 3);
      __builtin_prefetch(g + i + ahead, 0, 3);
      __builtin_prefetch(m + i + ahead, 1, 3);
      __builtin_prefetch(m + i + ahead + LineFloats, 1, 3);
      if (second) {
        __builtin_prefetch(v + i + ahead, 1, 3);
        __builtin_prefetch(v + i + ahead + LineFloats, 1, 3);
      }
    }
#pragma GCC ivdep
    for (int64_t j = i; j < i + LineShorts; ++j)
      p[j] = p[j] > g[j] ? p[j] : g[j];
#pragma GCC ivdep
    for (int64_t j = i; j < i + LineShorts; ++j) {
      m[j] = m[j] + 1.0f;
      if (second)
        v[j] = v[j] + 1.0f;
    }
  }
}

/* The same with 16-bit p and g: 22 bytes an element, or 14. `n` is a multiple
   of 32. */
void benchStreamBF16(uint16_t *restrict p, const uint16_t *restrict g,
                     float *restrict m, float *restrict v, int64_t n,
                     int64_t distance) {
#pragma omp parallel
  {
    int64_t begin, end;
    myPart(n / LineShorts, &begin, &end);
    if (v)
      linesBF16(p, g, m, v, 1, begin, end, distance);
    else
      linesBF16(p, g, m, v, 0, begin, end, distance);
  }
}

/* Reads `bytes`, a multiple of 64, and writes nothing; returns what the
   compiler cannot know. Four sums, as one would wait for itself. */
uint64_t benchRead(const uint64_t *restrict data, int64_t bytes,
                   int64_t distance) {
  enum { LineWords = LineBytes / 8 };
  uint64_t total = 0;
#pragma omp parallel reduction(+ : total)
  {
    int64_t begin, end, ahead = distance * LineWords;
    uint64_t sums[4 * LineWords] = {0};
    myPart(bytes / LineBytes, &begin, &end);
    int64_t i = begin * LineWords, last = end * LineWords;
    for (; i + 4 * LineWords <= last; i += 4 * LineWords) {
      if (distance)
        for (int64_t line = 0; line < 4; ++line)
          __builtin_prefetch(data + i + line * LineWords + ahead, 0, 3);
      for (int64_t j = 0; j < 4 * LineWords; ++j)
        sums[j] += data[i + j];
    }
    for (; i < last; ++i)
      sums[0] += data[i];
    for (int64_t j = 0; j < 4 * LineWords; ++j)
      total += sums[j];
  }
  return total;
}
