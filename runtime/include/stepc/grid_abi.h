/*===- grid_abi.h - what launches find that are spread over a grid ---------===
 *
 * Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * Parts of finishes that are spread (docs/cuda.md) are launched with as many
 * blocks as the device holds at once, or fewer, for all rows of a list. Below
 * the address of the workspace lies memory of each block: that of block b from
 * workspace - (b + 1) * STEPC_BLOCK_SCRATCH on. Its contents are undefined.
 */
#ifndef STEPC_GRID_ABI_H
#define STEPC_GRID_ABI_H

/* The f64 sums of a tile of 128 by 128 elements. */
#define STEPC_BLOCK_SCRATCH 131072

#endif /* STEPC_GRID_ABI_H */
