//===- Evaluator.h - what one operation makes --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_EVALUATOR_H
#define STEPC_DIALECT_REFERENCE_EVALUATOR_H

#include "dialect/reference/Element.h"
#include "dialect/reference/Environment.h"
#include "dialect/reference/Shapes.h"

namespace mlir::step::reference {

/// Whether the operation makes one value, an f64, an i1 or an i64.
bool isOnScalars(Operation *op);

/// The first operand that does not exist, if any, and the operation therefore
/// does not either. Of a select by a condition that is known, the operand that
/// it does not take may be missing.
const Absent *findAbsent(const Frame &frame, Operation *op);

/// Computes operations one by one, of operands that the frame holds.
class Evaluator {
public:
  /// `number` is the tensor's; 0 outside of one.
  Evaluator(const Frame &frame, const Shapes &shapes, Format compute,
            uint64_t number = 0)
      : frame(frame), shapes(shapes), compute(compute), number(number) {}

  /// The value of the operation's result. Of a select by a scalar only the
  /// operand that it takes is looked at.
  llvm::Expected<Datum> evaluate(Operation *op) const;

private:
  Datum evaluateReduction(ReductionOpInterface op) const;
  Datum evaluateMatrices(Operation *op) const;
  Datum evaluateNormals(RandomNormalOp op) const;
  Datum evaluateElements(ValueOpInterface op) const;

  const Datum &get(Value value) const { return frame.get(value); }
  /// The value as a tensor of the compute format: a scalar is rounded to it,
  /// once, where it meets a tensor.
  Tensor getTensor(Value value) const;
  /// The value as the operand of an operation on scalars, or on tensors.
  Array<Element> getElements(Value value, bool isScalar) const;

  const Frame &frame;
  const Shapes &shapes;
  Format compute;
  uint64_t number;
};

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_EVALUATOR_H
