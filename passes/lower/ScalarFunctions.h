//===- ScalarFunctions.h - functions in place of operations -----*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_SCALARFUNCTIONS_H
#define STEPC_PASSES_LOWER_SCALARFUNCTIONS_H

#include "mlir/IR/Builders.h"

namespace mlir::step {

/// Replaces operations of one kind, which have one result each, by calls of the
/// function `name` of their module. `emitBody` gives its result of its
/// arguments, which are the operation's operands. So a module has the hundreds
/// of operations of an expansion once, however often it needs them.
void callInstead(ArrayRef<Operation *> ops, StringRef name,
                 function_ref<Value(OpBuilder &, ValueRange)> emitBody);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_SCALARFUNCTIONS_H
