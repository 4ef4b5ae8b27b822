//===- Rounds.h - when scalars of several tensors are made -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_ROUNDS_H
#define STEPC_DIALECT_REFERENCE_ROUNDS_H

#include "dialect/reference/Environment.h"

namespace mlir::step::reference {

/// The rounds of docs/statistics.md. A `step.scalars` runs in the first round
/// after everything that it reads is complete; what a rule makes of its results
/// is complete a segment later. This follows from the definition as it is
/// written, whichever rules and options are used.
class Rounds {
public:
  explicit Rounds(const Source &source);

  /// The operations of each round, in the order in which they are written.
  ArrayRef<SmallVector<ScalarsOp>> getRounds() const { return rounds; }

private:
  /// The last segment that what `op` reads is complete in.
  unsigned getSegment(Operation *op) const;
  /// The round that it runs in, as far as is known.
  unsigned getRound(ScalarsOp scalars) const;
  /// Where the values of a rule's body are complete.
  /// `input` is the segment of the gradient, or param, that the rule sees.
  void visitRule(RuleOp rule, unsigned input);
  /// Everything once; true if that changed something.
  bool visit(const Source &source);
  void raise(Value value, unsigned segment);

  /// The segment in which a value is complete; 0 where there is no entry.
  DenseMap<Value, unsigned> segments;
  SmallVector<SmallVector<ScalarsOp>> rounds;
  bool changed = false;
};

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_ROUNDS_H
