//===- BlockProduct.h - products by the blocks of a grid -----*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CUDA_BLOCKPRODUCT_H
#define STEPC_PASSES_LOWER_CUDA_BLOCKPRODUCT_H

#include "passes/lower/Products.h"

namespace mlir::step {

/// Elements of a side of the tile that a block makes at a time.
int64_t getTileSide(const Product &product);

/// How many tiles there are; of a symmetric result those of one half. It is
/// asked for rows, columns, types and symmetry alone.
Value countProductTiles(const Words &w, const Product &product);

/// Emits the product by the blocks of a grid, each of which makes the tiles
/// from `firstTile` on in steps of as many as there are blocks.
void emitTiledProduct(const Words &w, const Product &product);

/// The f32 of the bf16 nearest to a number, or a zero where that is denormal.
Value toFactor(const Words &w, Value number);

/// One more product of such factors.
Value addFactors(const Words &w, Value x, Value y, Value sum);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_BLOCKPRODUCT_H
