//===- kernel_abi.h - what compiled kernels and the runtime agree on ------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The contract between the compiler's lowering passes, which emit code that
// reads these structures, and the runtime, which fills them. Both include this
// header and neither owns it. It depends on <stdint.h> only. Any change of
// layout raises STEPC_KERNEL_ABI_VERSION, which the manifest carries.
//
// A kernel serves any number of tensors of any size: tensors are rows of a
// table, and the work is a list of chunks of rows. A row is a sequence of
// 64-bit words, `rowWords` of them.
//
// The elements space, of definitions without reductions and dims:
//
//   word 0        address of the tensor's scalar row (array of double)
//   word 1        rank of the row: 0 in contiguous kernels
//   words 2..     base address of each operand, in the manifest's order
//   then, in strided kernels only, `rank` being the value of word 1:
//                 `rank` extents (outermost first),
//                 and for each operand `rank` strides, in elements
//
// An operand of the kind `position` is not in memory: a kernel takes the
// address of its element, with elements of one byte, for its value. The base
// address is the position of the row's first element, the tensor's number *
// 2^40 + its index in the whole tensor, and the strides are those of the whole
// tensor.
//
// Chunks count elements. Element i of a row is the i-th in row-major order of
// the extents; in a contiguous kernel every operand keeps it at base + i.
//
// The tiles space, of all others, of a rule with D dims as the manifest lists
// them (`...b` counts as one, the product of the leading extents), and behind
// them its `bound_dims`, whose extents follow from theirs;
// docs/statistics.md defines tiles and the workspace:
//
//   words 0, 1    as above
//   word 2        address of the tensor's slots (array of double)
//   then          D extents of what this rank has; where it has a flat range,
//                 of the whole tensor
//                 D extents of the whole tensor
//                 begin and end of the flat range; else 0 and the number of
//                 elements
//                 base address of each operand, in the manifest's order, then a
//                 word for each buffer of the workspace: its address where the
//                 buffer is live, else its offset in bytes from
//                 StepcCall::workspace
//   then, in strided kernels only:
//                 `rank` extents (outermost first, all dims of the tensor),
//                 and for each operand `rank` strides, in elements; those of
//                 operands of fewer dims are not read: they are dense
//
// Chunks count tiles. A row of a tile runs along the rule's last dim, M
// elements; N rows, the extent of the dim before it, are an item. In a
// contiguous kernel every operand is row-major in the dims that it has: of dims
// [...b, n, m] one of [...b, 1, m] keeps element (b, m) at base + b * M + m.
// The order is the logical one, whatever the strides.
//
// A tensor that is not sharded is the special case: both have the same extents.
// With a flat range, operands of the parameter's dims are dense and point at
// element `begin`, those of fewer dims are whole. Tiles are numbered from the
// block of rows that holds element `begin`: tile = (block - first block) *
// ceil(M / STEPC_TILE_COLUMNS) + column block (docs/sharding.md).
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_KERNEL_ABI_H
#define STEPC_KERNEL_ABI_H

#include <stdint.h>

#define STEPC_KERNEL_ABI_VERSION 12

/* Indices of the fixed words of a row. */
#define STEPC_ROW_SCALARS 0
#define STEPC_ROW_RANK 1
#define STEPC_ROW_OPERANDS 2

/* The same in the tiles space, where words 0 and 1 are as above. */
#define STEPC_TILE_SLOTS 2
#define STEPC_TILE_EXTENTS 3
/* The first word behind the extents of so many dims. */
#define STEPC_TILE_WHOLE(dims) (STEPC_TILE_EXTENTS + (dims))
#define STEPC_TILE_BEGIN(dims) (STEPC_TILE_EXTENTS + 2 * (dims))
#define STEPC_TILE_END(dims) (STEPC_TILE_BEGIN(dims) + 1)
#define STEPC_TILE_OPERANDS(dims) (STEPC_TILE_BEGIN(dims) + 2)

/* Dims of a rule in the tiles space, at most: `...b`, four with names, and
 * three whose extents follow from these. */
#define STEPC_NAMED_DIMS_MOST 4
#define STEPC_BOUND_DIMS_MOST 3
#define STEPC_TILE_DIMS_MOST (1 + STEPC_NAMED_DIMS_MOST + STEPC_BOUND_DIMS_MOST)

/* The tree of a reduction: elements of a leaf in lane order, its lanes, and
 * elements of a leaf in sequence order. */
#define STEPC_LEAF 1024
#define STEPC_LANES 16
#define STEPC_ROW_LEAF 64

/* Elements of a leaf of a product, along the dim that both matrices have. */
#define STEPC_PRODUCT_LEAF 512

/* How a processor packs the operands of a product, for which the workspace has
 * buffers: bytes of a row of the right one's panels, which is a vector, and
 * rows of the left one that are packed together, which are whole tiles. */
#define STEPC_PANEL_BYTES 64
#define STEPC_PACKED_ROWS 96

/* Bits of an element's index in its tensor; above them is the tensor's number.
 */
#define STEPC_POSITION_BITS 40

/* The hyper-parameter that the generator of packages with positions is seeded
 * by: an integer from 0 to this, which scalar functions convert to one. */
#define STEPC_SEED_HYPER "rounding_seed"
#define STEPC_SEED_MOST 9007199254740992.0 /* 2^53 */

/* A tile is STEPC_ROW_LEAF rows times this many columns, fewer at the ends. */
#define STEPC_TILE_COLUMNS 4096

/* What a processor needs to run the code of a target, by LLVM's names. */
#define STEPC_X86_64_V3_FEATURES                                               \
  "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"
#define STEPC_X86_64_V4_FEATURES                                               \
  STEPC_X86_64_V3_FEATURES, "avx512f", "avx512bw", "avx512cd", "avx512dq",     \
      "avx512vl"
/* The last is no flag of a processor: its units are 512 bits wide. Code for
 * it is refused by others that could run it, and would slowly. */
#define STEPC_X86_64_V4_512_FEATURES STEPC_X86_64_V4_FEATURES, "wide512"

/* Elements or tiles [start, start + length) of table row `row`. */
typedef struct StepcChunk {
  int64_t row;
  int64_t start;
  int64_t length;
} StepcChunk;

/* How many doubles a decomposition works in for each row of the matrix. */
#define STEPC_EIGEN_WORK 35
#define STEPC_ORTHONORMAL_WORK 67

/* Routines of the runtime that finishes call, of an engine that runs on a
 * processor; devices have none. */
typedef struct StepcRoutines {
  /* Makes of a symmetric matrix of n rows, row-major, its eigenvectors as
   * step.eigh orders them (docs/language.md). Works in n * n doubles and in n *
   * STEPC_EIGEN_WORK, whose first n are the eigenvalues then, in that order. */
  void (*eigenvectors)(double *matrix, int64_t n, double *vectors,
                       double *work);
  /* Makes of a matrix of no more columns than rows, row-major, an orthonormal
   * basis of its columns in `basis`, as step.qr says. Works in the matrix and
   * in rows * STEPC_ORTHONORMAL_WORK doubles. */
  void (*orthonormal)(double *matrix, int64_t rows, int64_t columns,
                      double *basis, double *work);
  /* Which key stands in each place, in the order of step.sort. */
  void (*order)(const double *keys, int64_t n, int64_t *places);
  /* Whether the calling thread takes f32 that is denormal for 0, as operand and
   * as result: 1 or 0. */
  void (*flush)(int64_t on);
  /* 1 where the processor has dot products of bf16 (AVX512_BF16), else 0. */
  int64_t hasDots;
} StepcRoutines;

/* On a device a finish leaves decompositions to the host: a launch hands
 * matrices over, in memory of the host that the device reaches, with a record
 * of these words, the host makes of them what the routine does, and a later
 * launch takes that. One matrix lies behind the other. */
enum {
  STEPC_CALL_MATRICES, /* how many; 0: nothing is to be done */
  STEPC_CALL_ROUTINE,  /* STEPC_ROUTINE_... */
  STEPC_CALL_ROWS,
  STEPC_CALL_COLUMNS,
  STEPC_CALL_BYTES,   /* of an element: 4 or 8 */
  STEPC_CALL_ADDRESS, /* of the first matrix, and of what is made of it */
  STEPC_CALL_VALUES,  /* of the first matrix's eigenvalues, a row; 0: none */
  STEPC_CALL_WORDS = 8
};
/* Parts of finishes that are spread over a device (docs/cuda.md) are launched
 * with as many blocks as it holds at once, or fewer, for all rows of a list.
 * Below the address of the workspace lies memory of each block: that of block b
 * from workspace - (b + 1) * STEPC_BLOCK_SCRATCH on, the f64 sums of a tile of
 * 128 by 128 elements. Its contents are undefined. */
#define STEPC_BLOCK_SCRATCH 131072

/* In the order of StepcRoutines. Keys are a row of f64; of these 64-bit places
 * are made. */
enum {
  STEPC_ROUTINE_EIGENVECTORS,
  STEPC_ROUTINE_ORTHONORMAL,
  STEPC_ROUTINE_ORDER
};

/* What one call of a kernel works on. Read only for the kernel. */
typedef struct StepcCall {
  const int64_t *table;
  int64_t rowWords;
  const StepcChunk *chunks;
  /* Where the buffers of the workspace lie that are not live; aligned to 64
   * bytes. Their contents are undefined when a segment of the row begins. */
  char *workspace;
  const StepcRoutines *routines;
} StepcCall;

/* Runs the chunks [begin, end) of call->chunks. No threads, no allocation, no
 * I/O inside; reads and writes only the memory that the rows name. Entries of
 * [begin, end) are looked at ahead of their turn to prefetch their data. */
typedef void (*StepcKernel)(const StepcCall *call, int64_t begin, int64_t end);

/* Runs once for the tensor of table row `row`, after all chunks of the kernel
 * before it in the schedule: combines partial sums, computes vectors and
 * scalars of the tensor. call->chunks is not read. */
typedef void (*StepcFinish)(const StepcCall *call, int64_t row);

/* Fills what a segment needs of one scalar row: values of the rule's scalar
 * expressions that kernels read. The row keeps what earlier segments filled.
 *   hypers   the group's hyper-parameters, in the manifest's order
 *   results  the group's results of rounds, in the order of the manifest's
 *            indices, and behind them its scalars, as they are before the step
 *   count    the step count of the tensors of this row, 1 in their first step
 *   fresh    bit k: a state of the k-th list of the variant's "fresh" in the
 *            manifest is created by this step */
typedef void (*StepcScalarFunction)(const double *hypers, const double *results,
                                    int64_t count, int64_t fresh, double *row);

/* One call of a round, for the model or for one group; a call for the model
 * gets the arrays of the first group. Returns 1 to skip the step, else 0.
 *   hypers, options, statistics, scalars
 *            in the order of the manifest's lists
 *   results  the function sets those that its entry in the manifest names
 *   updated  as long as scalars and equal to them until a call of the step
 *            changes it; the function sets those that it updates */
typedef int64_t (*StepcRoundFunction)(const double *hypers,
                                      const int64_t *options,
                                      const double *statistics,
                                      const double *scalars, double *results,
                                      double *updated);

/* Code for devices (docs/cuda.md) has kernels of the functions above, and some
 * besides that an engine needs, of the names below. All arguments are words.
 * Kernels that work on entries [begin, end) of a list end with `skip`, the
 * address of an i64: where it is not 0 the launch does nothing.
 *
 *   store(to, word 0, word 1, ..., word STEPC_STORE_WORDS - 1)
 *       stores the words side by side from address `to` on: what the host
 *       tells the device travels as arguments of launches
 *   set(to, word)
 *       stores one word
 *   advance(list, begin, end, skip)
 *       counts a step in the entries of a list of arguments of
 *       StepcScalarFunction: adds 1 to `count` and clears `fresh`
 *   copy(list, begin, end, skip)
 *       entries are two addresses, from and to: copies a word
 *   fill(list, begin, end, skip)
 *       entries are an address, a count and a word: stores the word so many
 *       times, side by side
 *   order(list, begin, end, skip), unorder(list, begin, end, skip)
 *       entries are two addresses, from and to: an f64 as the integer that
 *       orders as it does, any NaN above all, as maxima cross ranks; and back
 *   check(list, entries, state, skip), compare(list, entries, state, skip)
 *       at the begin and the end of a step of a package that carries scalars:
 *       makes the next one that is known unknown, so that it is computed, and
 *       compares it with what was computed; in a step that is skipped it is
 *       known again. Where it is another one all become unknown, and the words
 *       STEPC_STATE_CARRIED_... say so
 *   forget(list, begin, end, skip)
 *       makes carried scalars unknown
 *   begin(state, version, graph)
 *       begins a step, in the words STEPC_STATE_... at `state`. The launch of a
 *       graph, which was captured for `version`, is to be skipped where the
 *       state has another one; STALE counts those
 *   decide(list, begin, end, state, round, after)
 *       after a round: skips the rest of the step where an i64 is not 0 that an
 *       entry, an address, names; LOST counts the rounds `after` it
 *
 * A package that has transfers (docs/sharding.md) has two more:
 *
 *   convert(list, entries, tiles, skip)
 *       elements become elements of another type, divided before in the type of
 *       sums where the divisor is not 1. An entry has as many tiles as its
 *       elements fill, from the one that it names on, which is the end of those
 *       of the entry before; together they are `tiles`
 *   sum(rows, stride, numRows, target, count, kind, divisor, adds, skip)
 *       adds up rows of `count` elements, each `stride` elements behind the one
 *       before, in their order, and divides the sum, where the divisor, the
 * bits of an f64, is not 1; where `adds` is not 0 it is added to what is there
 *
 * One whose tensors have states of f32 has two more for each format in which
 * these may be kept (docs/states.md):
 *
 *   decode_q8(list, entries, tiles, skip), encode_q8(list, entries, tiles,
 * skip) decode_f8_e4m3(list, entries, tiles, skip), encode_f8_e4m3(...) codes
 * become f32 that kernels work on, and codes again. Entries have tiles as those
 * of `convert` have
 */
#define STEPC_BLOCK_THREADS 256
/* Blocks that share an entry of a chunk list in the tiles space, at most. */
#define STEPC_TILE_PARTS 4
#define STEPC_STORE_KERNEL "step_store"
#define STEPC_STORE_WORDS 496
#define STEPC_SET_KERNEL "step_set"
#define STEPC_ADVANCE_KERNEL "step_advance"
#define STEPC_COPY_KERNEL "step_copy"
#define STEPC_COPY_ENTRY_WORDS 2
#define STEPC_FILL_KERNEL "step_fill"
#define STEPC_FILL_ENTRY_WORDS 3
#define STEPC_ORDER_KERNEL "step_order"
#define STEPC_UNORDER_KERNEL "step_unorder"
#define STEPC_CHECK_KERNEL "step_check"
#define STEPC_COMPARE_KERNEL "step_compare"
#define STEPC_FORGET_KERNEL "step_forget"
/* Of a carried scalar: addresses of the slot, 0 in it being unknown, and of the
 * slot in which it is computed; whether the step takes the tensor, and which
 * that is. */
#define STEPC_CARRIED_ENTRY_WORDS 4
#define STEPC_BEGIN_KERNEL "step_begin"
#define STEPC_DECIDE_KERNEL "step_decide"
#define STEPC_CONVERT_KERNEL "transfer_convert"
#define STEPC_SUM_KERNEL "transfer_sum"

/* Words of an entry of what is converted: addresses; how many elements; of what
 * kind; the bits of the divisor, an f64; the first tile. */
#define STEPC_CONVERT_ENTRY_SOURCE 0
#define STEPC_CONVERT_ENTRY_TARGET 1
#define STEPC_CONVERT_ENTRY_COUNT 2
#define STEPC_CONVERT_ENTRY_KIND 3
#define STEPC_CONVERT_ENTRY_DIVISOR 4
#define STEPC_CONVERT_ENTRY_TILE 5
#define STEPC_CONVERT_ENTRY_WORDS 6
#define STEPC_CONVERT_TILE_ELEMENTS 8192
/* A kind is the bytes of an element that is copied, or is zero where the source
 * is 0; or it names both types. */
#define STEPC_TYPE_F32 0
#define STEPC_TYPE_F64 1
#define STEPC_TYPE_BF16 2
#define STEPC_TYPE_F16 3
#define STEPC_CONVERT_KIND(from, to) (16 + 4 * (from) + (to))

/* Of states that are kept as codes; the format's name follows. */
#define STEPC_DECODE_KERNEL "decode_"
#define STEPC_ENCODE_KERNEL "encode_"

/* Words of an entry of what is decoded and encoded: addresses of f32, codes and
 * scales, those of the first element; how many blocks there are; the elements
 * of a row, and the column of the first element, where a block begins; the
 * first tile. */
#define STEPC_CODES_ENTRY_VALUES 0
#define STEPC_CODES_ENTRY_CODES 1
#define STEPC_CODES_ENTRY_SCALES 2
#define STEPC_CODES_ENTRY_BLOCKS 3
#define STEPC_CODES_ENTRY_COLUMNS 4
#define STEPC_CODES_ENTRY_FIRST 5
#define STEPC_CODES_ENTRY_TILE 6
#define STEPC_CODES_ENTRY_WORDS 7
#define STEPC_CODES_TILE_BLOCKS 64
/* The elements of a block. */
#define STEPC_CODES_BLOCK 64

/* Words of an engine's state on a device, zeros when it is made. SKIPPED is not
 * 0 for the rest of a step that a round skips, SKIPPED and STALE_NOW for the
 * launch of a graph that is. NEVER stays 0: launches of all other steps name it
 * for `skip`. */
#define STEPC_STATE_SKIPPED 0
#define STEPC_STATE_SKIPPED_ROUND 1
#define STEPC_STATE_SKIPPED_STEPS 2
#define STEPC_STATE_LOST 3
#define STEPC_STATE_VERSION 4
#define STEPC_STATE_STALE 5
#define STEPC_STATE_STALE_NOW 6
#define STEPC_STATE_NEVER 7
/* The entry that was checked last; 1 + the one of the step under way, else 0,
 * and the bits of what it was; how many were stale, and of the last of these
 * the tensor, what it was and what was computed. */
#define STEPC_STATE_CARRIED_TURN 8
#define STEPC_STATE_CARRIED_CHECKED 9
#define STEPC_STATE_CARRIED_KNOWN 10
#define STEPC_STATE_CARRIED_STALE 11
#define STEPC_STATE_CARRIED_TENSOR 12
#define STEPC_STATE_CARRIED_WAS 13
#define STEPC_STATE_CARRIED_IS 14
#define STEPC_STATE_WORDS 15

/* Words of an entry for a StepcRoundFunction: its arguments, the address of the
 * i64 that it returns, and the address and count of flags, words of any bits.
 * It runs where one of them is not 0; else 0 stands for what it returns. */
#define STEPC_ROUND_ENTRY_WORDS 9

/* Words of an entry for a StepcScalarFunction: addresses of hyper-parameters
 * and results, count, fresh, address of the row. */
#define STEPC_SCALAR_ENTRY_WORDS 5
#define STEPC_SCALAR_ENTRY_COUNT 2
#define STEPC_SCALAR_ENTRY_FRESH 3

#endif /* STEPC_KERNEL_ABI_H */
