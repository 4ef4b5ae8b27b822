//===- Gather.h - strided elements to and from the stack --------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_GATHER_H
#define STEPC_PASSES_LOWER_CPU_GATHER_H

#include "passes/lower/Words.h"

namespace mlir::step {

/// An operand of a strided row: addresses of its first element and of the words
/// with extents and strides (outermost first, in elements); `rank` is a word.
struct StridedMemory {
  Value address, rank, extents, strides;
  int64_t elementBytes;
};

/// Memory of the function's own; returns its address. To be emitted in a
/// function's first block.
Value emitStackBuffer(const Words &w, int64_t bytes);

/// Copies `count` (a word) elements, from number `first` (a word, in row-major
/// order) on, to the consecutive ones at `to`, or back from there.
void emitGather(const Words &w, const StridedMemory &memory, Value first,
                Value count, Value to);
void emitScatter(const Words &w, const StridedMemory &memory, Value first,
                 Value count, Value from);

/// Writes the addresses of those elements, words, to the consecutive ones at
/// `to`.
void emitAddresses(const Words &w, const StridedMemory &memory, Value first,
                   Value count, Value to);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_GATHER_H
