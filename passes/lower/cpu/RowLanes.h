//===- RowLanes.h - what a traversal carries along a row --------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of an accumulator along rows the loop over the columns carries 16 lanes. Sums
// are f64. A maximum is exact in any type: its lanes stay of the type in which
// the rule computes. Of magnitudes, which have no sign, they are integers, that
// order as the numbers do and any NaN above all: one operation instead of
// the comparisons that tell apart zeros and find NaNs.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_PASSES_LOWER_CPU_ROWLANES_H
#define STEPC_PASSES_LOWER_CPU_ROWLANES_H

#include "passes/lower/Combiners.h"
#include "passes/lower/Operand.h"

namespace mlir::step {

class RowLanes {
public:
  RowLanes(const Words &w, TraverseOp traverse, const Accumulator &accumulator);

  /// Lanes that change nothing.
  Value emitNeutral() const;
  /// The lanes with those of a vector of the body's values.
  Value emitCombined(Value lanes, Value values) const;
  /// The lanes as f64.
  Value emitWidened(Value lanes) const;

private:
  VectorType getLanes(Type element) const;

  const Words &w;
  Combiner combiner;
  /// Of the lanes, or what integers are the bits of.
  FloatType type;
  bool isMagnitude = false;
};

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_ROWLANES_H
