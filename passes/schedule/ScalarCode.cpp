//===- ScalarCode.cpp - one operation of a rule as scalar code ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ScalarCode.h"

#include "mlir/IR/Builders.h"
#include "llvm/Support/ErrorHandling.h"

using namespace mlir;
using namespace mlir::step;

Value mlir::step::mapOrMaterialize(OpBuilder &builder, Value value,
                                   IRMapping &mapping, Type type) {
  if (Value mapped = mapping.lookupOrNull(value))
    return mapped;
  auto constant = value.getDefiningOp<ConstantOp>();
  assert(constant && "only constants are materialized where they are used");
  return ConstantOp::getParts().emit(builder, constant, {}, type);
}

Value mlir::step::emitScalarCode(OpBuilder &builder, Operation *op,
                                 IRMapping &mapping, Type type) {
  auto value = dyn_cast<ValueOpInterface>(op);
  auto emit = value ? value.getParts().emit : nullptr;
  // The verifier of rules lets through operations of the language; those
  // without code are reductions, and what is carried.
  if (!emit)
    llvm::report_fatal_error("no scalar code is known for '" +
                             op->getName().getStringRef() + "'");
  SmallVector<Value> in;
  for (Value operand : op->getOperands())
    in.push_back(mapOrMaterialize(builder, operand, mapping, type));
  return emit(builder, op, in, type);
}
