//===- Calls.h - scalars that are written once --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_CALLS_H
#define STEPC_DIALECT_REFERENCE_CALLS_H

#include "dialect/reference/Environment.h"

namespace mlir::step::reference {

/// Gives the results of a call, whose arguments the frame holds, their values.
/// `evaluate` computes one operation of operands that a frame holds.
llvm::Error evaluateCall(
    CallOp call, Frame &frame,
    llvm::function_ref<llvm::Expected<Datum>(Operation *, const Frame &)>
        evaluate);

/// What the operations read, and those of what they call.
void collectOperands(Block &body, SmallVectorImpl<Value> &operands);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_CALLS_H
