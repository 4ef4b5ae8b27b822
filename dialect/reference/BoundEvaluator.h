//===- BoundEvaluator.h - what one operation may make ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_BOUNDEVALUATOR_H
#define STEPC_DIALECT_REFERENCE_BOUNDEVALUATOR_H

#include "dialect/reference/Element.h"
#include "dialect/reference/Environment.h"
#include "dialect/reference/Shapes.h"

namespace mlir::step::reference {

/// As Evaluator, of intervals. Counts the elements that could jump.
class BoundEvaluator {
public:
  /// `number` is the tensor's; 0 outside of one.
  BoundEvaluator(const Frame &frame, const Shapes &shapes, Format compute,
                 Jumps &jumps, uint64_t number = 0)
      : frame(frame), shapes(shapes), compute(compute), jumps(jumps),
        number(number) {}

  llvm::Expected<Datum> evaluate(Operation *op) const;

private:
  Datum evaluateReduction(ReductionOpInterface op) const;
  Datum evaluateMatrices(Operation *op) const;
  Datum evaluateNormals(RandomNormalOp op) const;
  Datum evaluateElements(ValueOpInterface op) const;

  const Datum &get(Value value) const { return frame.get(value); }
  Bounds getBounds(Value value) const;
  /// The value as the operand of an operation on scalars, or on tensors.
  Array<BoundElement> getElements(Value value, bool isScalar) const;

  const Frame &frame;
  const Shapes &shapes;
  Format compute;
  Jumps &jumps;
  uint64_t number;
};

/// An f64 of the definition, whichever kind it is.
Interval getInterval(const Datum &datum);

/// The same of an i1.
Truth getTruth(const Datum &datum);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_BOUNDEVALUATOR_H
