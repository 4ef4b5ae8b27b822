//===- BlockProduct.h - a product by the threads of a block -----*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CUDA_BLOCKPRODUCT_H
#define STEPC_PASSES_LOWER_CUDA_BLOCKPRODUCT_H

#include "passes/lower/Products.h"

namespace mlir::step {

/// Emits the product by the threads of one block, each its own elements. It is
/// right, and slow: nothing is shared, and half of a symmetric result is not
/// left out.
void emitBlockProduct(const Words &w, const Product &product);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_BLOCKPRODUCT_H
