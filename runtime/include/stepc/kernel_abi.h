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
// table, and the work is a list of chunks of rows.
//
// A row is a sequence of 64-bit words, `rowWords` of them:
//
//   word 0        address of the tensor's scalar row (array of double)
//   word 1        rank of the row: 0 in contiguous kernels
//   words 2..     base address of each operand, in the manifest's order
//   then, in strided kernels only, `rank` being the value of word 1:
//                 `rank` extents (outermost first),
//                 and for each operand `rank` strides, in elements
//
// Element i of a row is the i-th in row-major order of the extents; in a
// contiguous kernel every operand keeps element i at base + i.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_KERNEL_ABI_H
#define STEPC_KERNEL_ABI_H

#include <stdint.h>

#define STEPC_KERNEL_ABI_VERSION 1

/* Indices of the fixed words of a row. */
#define STEPC_ROW_SCALARS 0
#define STEPC_ROW_RANK 1
#define STEPC_ROW_OPERANDS 2

/* Elements [start, start + length) of table row `row`. */
typedef struct StepcChunk {
  int64_t row;
  int64_t start;
  int64_t length;
} StepcChunk;

/* What one call of a kernel works on. Read only for the kernel. */
typedef struct StepcCall {
  const int64_t *table;
  int64_t rowWords;
  const StepcChunk *chunks;
} StepcCall;

/* Runs the chunks [begin, end) of call->chunks. No threads, no allocation, no
 * I/O inside; reads and writes only the memory that the rows name. Entries of
 * [begin, end) are looked at ahead of their turn to prefetch their data. */
typedef void (*StepcKernel)(const StepcCall *call, int64_t begin, int64_t end);

/* Fills one scalar row: `slots` doubles, the values of the rule's scalar
 * expressions that kernels read.
 *   hypers  the group's hyper-parameters, in the manifest's order
 *   count   the step count of the tensors of this row, 1 in their first step
 *   fresh   1 in the step that creates the tensors' state, else 0 */
typedef void (*StepcScalarFunction)(const double *hypers, int64_t count,
                                    int64_t fresh, double *row);

#endif /* STEPC_KERNEL_ABI_H */
