//===- Calls.h - what is written once -----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_CALLS_H
#define STEPC_DIALECT_REFERENCE_CALLS_H

#include "dialect/reference/Environment.h"

namespace mlir::step::reference {

/// Computes one operation of operands that a frame holds.
using EvaluateOp =
    llvm::function_ref<llvm::Expected<Datum>(Operation *, const Frame &)>;

/// Gives the results of a call, whose arguments the frame holds, their values.
llvm::Error evaluateCall(CallOp call, Frame &frame, EvaluateOp evaluate);

/// The same of a repetition. The frame holds what its body sees of the outside.
llvm::Error evaluateRepeat(RepeatOp repeat, Frame &frame, EvaluateOp evaluate);

/// What the operations read, and those of what they call.
void collectOperands(Block &body, SmallVectorImpl<Value> &operands);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_CALLS_H
