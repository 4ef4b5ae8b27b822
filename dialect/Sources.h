//===- Sources.h - what a value is computed of ------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_DIALECT_SOURCES_H
#define STEPC_DIALECT_SOURCES_H

#include "mlir/IR/Operation.h"

namespace mlir::step {

/// What a walk does where it comes to a value.
enum class Follow {
  Operands, // goes on with what its operation is computed of
  Nothing,  // goes no further here
  Stop,     // ends the walk
};

/// Walks from `value` to what it is computed of. `enter` is asked of each value
/// that an operand is; `leave` is told of each operation that was followed when
/// all its operands have been: so in an order in which they can be computed,
/// and of each once, however many use it. False where `enter` said to stop.
///
/// Of %c = add(%b, %b), %b = abs(%a), with %a an argument: enters %c, %b, %a,
/// leaves abs, enters %b, which is done, leaves add.
///
/// A walk by recursion would need a frame of the stack for each operation of a
/// chain, and a rule may have any number of them.
bool walkSources(Value value, function_ref<Follow(Value)> enter,
                 function_ref<void(Operation *)> leave);

/// The value where it is to be used before it is made, in the block of `op`:
/// what it is made of that stands behind `op` moves in front of it.
void moveSourcesBefore(Value value, Operation *op);

} // namespace mlir::step

#endif // STEPC_DIALECT_SOURCES_H
