//===- Operand.h - what a traversal touches ---------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_OPERAND_H
#define STEPC_PASSES_LOWER_OPERAND_H

#include "passes/ParamDims.h"

namespace mlir::step {

/// A buffer that a traversal reads, writes or makes.
struct Operand {
  Value buffer;
  /// The argument of the body that is its element, and the place of the new
  /// element among what the body yields.
  std::optional<unsigned> element, yielded;

  bool reads() const { return element.has_value(); }
  bool writes() const { return yielded.has_value(); }
  BufferType getType() const { return cast<BufferType>(buffer.getType()); }
  Type getStorage() const { return getType().getElement(); }
  bool isInMemory() const { return getType().isInMemory(); }
  int64_t getBytes() const { return getType().getElementBytes(); }
  /// Whether memory of it is read or written.
  bool isTouched() const { return isInMemory() && (reads() || writes()); }
  /// Whether it is a state of the optimizer.
  bool isState() const;
  /// Whether another operand is of the same memory.
  bool isSameMemory(const Operand &other) const {
    return getMemory(buffer) == getMemory(other.buffer);
  }
};

/// Those of the program in the order of its arguments, then vectors of the
/// workspace. Of an elementwise program all arguments that are tensors, touched
/// or not: so their order is that of a row of the table.
SmallVector<Operand> getOperands(TraverseOp traverse);

/// A partial result that a traversal leaves.
struct Accumulator {
  Value partial;
  /// Its place among what the body yields.
  unsigned yielded;
  Combiner combiner;
  Leaves leaves;

  bool is(Leaves other) const { return leaves == other; }
  /// How many elements a partial result has, at most.
  int64_t getLeafElements() const;
};

SmallVector<Accumulator> getAccumulators(TraverseOp traverse);

/// The dims of a traversal, a buffer, or what of it is reduced.
DimSet getDimSet(TraverseOp traverse);
DimSet getDimSet(TraverseOp traverse, const Operand &operand);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_OPERAND_H
