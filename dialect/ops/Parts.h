//===- Parts.h - what files of operations have in common ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_OPS_PARTS_H
#define STEPC_DIALECT_OPS_PARTS_H

#include "dialect/Step.h"
#include "dialect/reference/Element.h"

#include "mlir/IR/Builders.h"

namespace mlir::step {

/// One operation of arith or math on the same operands.
template <typename OpT>
Value emitAs(OpBuilder &b, Operation *op, ValueRange in, Type) {
  return OpT::create(b, op->getLoc(), in);
}

/// The operand itself.
inline Value emitOperand(OpBuilder &, Operation *, ValueRange in, Type) {
  return in[0];
}

/// Of numbers: `exact` and `interval` as functions of these alone.
template <double (*exact)(ArrayRef<double>, reference::Format)>
reference::Element evaluateNumbers(Operation *,
                                   ArrayRef<reference::Element> operands,
                                   reference::Format compute) {
  SmallVector<double, 3> numbers;
  for (reference::Element operand : operands)
    numbers.push_back(operand.number);
  return reference::Element::of(exact(numbers, compute));
}
template <reference::Interval (*interval)(ArrayRef<reference::Interval>,
                                          reference::Format)>
reference::BoundElement boundNumbers(Operation *,
                                     ArrayRef<reference::BoundElement> operands,
                                     reference::Format compute) {
  SmallVector<reference::Interval, 3> numbers;
  for (const reference::BoundElement &operand : operands)
    numbers.push_back(operand.number);
  return reference::BoundElement::of(interval(numbers, compute));
}

/// The parts of an elementwise operation on numbers.
template <double (*exact)(ArrayRef<double>, reference::Format),
          reference::Interval (*interval)(ArrayRef<reference::Interval>,
                                          reference::Format)>
ValueParts getNumberParts(decltype(ValueParts::emit) emit,
                          StringRef symbol = "") {
  ValueParts parts;
  parts.sharding = Sharding::Elementwise;
  parts.symbol = symbol;
  parts.emit = emit;
  parts.evaluate = evaluateNumbers<exact>;
  parts.bound = boundNumbers<interval>;
  return parts;
}

/// The same where it is the operation `OpT` of arith or math.
template <typename OpT, double (*exact)(ArrayRef<double>, reference::Format),
          reference::Interval (*interval)(ArrayRef<reference::Interval>,
                                          reference::Format)>
ValueParts getNumberPartsAs(StringRef symbol) {
  ValueParts parts = getNumberParts<exact, interval>(emitAs<OpT>, symbol);
  parts.scalarOp = OpT::getOperationName();
  return parts;
}

} // namespace mlir::step

#endif // STEPC_DIALECT_OPS_PARTS_H
