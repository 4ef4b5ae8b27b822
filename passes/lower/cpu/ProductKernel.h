//===- ProductKernel.h - a product by one worker ----------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_PRODUCTKERNEL_H
#define STEPC_PASSES_LOWER_CPU_PRODUCTKERNEL_H

#include "passes/lower/Products.h"

namespace mlir::step {

/// Emits the product by one worker.
///
/// The right operand is packed into panels, row behind row, of as many columns
/// as `STEPC_PANEL_BYTES` hold; the left one, `STEPC_PACKED_ROWS` rows at a
/// time, into tiles of 6 rows, or with `avx512` 12, column behind column. What
/// is missing at the ends is 0:
///
///   panel 0          panel 1             tile 0            tile 1
///   k=0  b00..b0f    k=0  b0g..          k=0  a00..a50     k=0  a60..
///   k=1  b10..b1f    k=1  b1g..          k=1  a01..a51     k=1  a61..
///
/// A tile by a panel is a register tile: for each k a vector of the panel and
/// each of the tile's numbers, one fma a row. So each element of the result is
/// one chain over k, cut into leaves, whatever the extents are. Factors of bf16
/// are packed in pairs (Packing.h) and multiplied in PairLeaf.h.
void emitPackedProduct(const Words &w, const Product &product, bool avx512);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_PRODUCTKERNEL_H
