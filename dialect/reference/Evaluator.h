//===- Evaluator.h - what one operation makes --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_EVALUATOR_H
#define STEPC_DIALECT_REFERENCE_EVALUATOR_H

#include "dialect/reference/Environment.h"
#include "dialect/reference/Meaning.h"
#include "dialect/reference/Shapes.h"

namespace mlir::step::reference {

/// Computes operations one by one, of operands that the frame holds.
class Evaluator {
public:
  Evaluator(const Frame &frame, const Shapes &shapes, Format compute)
      : frame(frame), shapes(shapes), compute(compute) {}

  /// The value of the operation's result. Of a select by a scalar only the
  /// operand that it takes is looked at.
  llvm::Expected<Datum> evaluate(Operation *op) const;

private:
  Datum evaluateArithmetic(Operation *op, Meaning meaning) const;
  Datum evaluateReduction(ReductionOpInterface op) const;
  Datum evaluateCompare(CompareOp op) const;
  Datum evaluateSelect(SelectOp op) const;
  Datum evaluateIsFinite(IsFiniteOp op) const;
  Datum evaluateLogical(Operation *op) const;

  const Datum &get(Value value) const { return frame.get(value); }
  double getScalar(Value value) const { return std::get<double>(get(value)); }

  /// The value as a tensor of the compute format: a scalar is rounded to it,
  /// once, where it meets a tensor.
  Tensor getTensor(Value value) const;
  Mask getMask(Value value) const;

  /// The first operand that does not exist, if any.
  const Absent *findAbsent(ValueRange operands) const;

  const Frame &frame;
  const Shapes &shapes;
  Format compute;
};

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_EVALUATOR_H
