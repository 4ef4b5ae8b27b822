//===- PairLeaf.h - leaves of products of bf16 ------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_PAIRLEAF_H
#define STEPC_PASSES_LOWER_CPU_PAIRLEAF_H

#include "passes/lower/Products.h"

namespace mlir::step {

/// What comes to the chains of a leaf: those before and an index along the
/// depth give those after it.
using ChainStep =
    llvm::function_ref<SmallVector<Value>(Value k, ValueRange before)>;

/// A leaf of a register tile, of the packed operands' steps from `begin` to
/// `end`. All values are words.
struct LeafWork {
  Value packed, panel; // addresses
  Value panelPitch;    // bytes from a panel to the next
  Value begin, end;
  Value sums; // the address of the tile in f64, to which the leaf is added
};

/// Emits the chains of a leaf, and what becomes of them.
using LeafBody =
    llvm::function_ref<void(const Words &w, const LeafWork &, ChainStep)>;

/// A register tile of products of bf16: so many rows by so many panels.
struct PairTile {
  int64_t numRows, numPanels;
  bool canHaveDots; // the processor may have dot products
};

/// Emits a leaf of a product of bf16: by dot products where the processor has
/// them, else by two fused multiply-adds a pair in a mode without denormals.
/// Functions that all tiles of the module call; `emitBody` fills each once.
void emitPairLeaf(const Words &w, const LeafWork &work, Value routines,
                  const PairTile &tile, LeafBody emitBody);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_PAIRLEAF_H
