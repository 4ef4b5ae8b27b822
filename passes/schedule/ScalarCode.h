//===- ScalarCode.h - one operation of a rule as scalar code --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SCHEDULE_SCALARCODE_H
#define STEPC_PASSES_SCHEDULE_SCALARCODE_H

#include "dialect/Step.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::step {

/// The scalar code for `value`: what it is mapped to, or, for a constant, a new
/// arith.constant of the element type `type` (rounded once) or of i1.
Value mapOrMaterialize(OpBuilder &builder, Value value, IRMapping &mapping,
                       Type type);

/// Emits what `op` does to one element, in the floating-point type `type`, with
/// operations of arith and math and those that are expanded later. Returns the
/// result.
Value emitScalarCode(OpBuilder &builder, Operation *op, IRMapping &mapping,
                     Type type);

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_SCALARCODE_H
