//===- FunctionEmitter.h - the functions of the language as code ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_FUNCTIONEMITTER_H
#define STEPC_PASSES_LOWER_FUNCTIONEMITTER_H

#include "dialect/Step.h"

#include "mlir/IR/Builders.h"

namespace mlir::step {

/// Emits the functions of dialect/Functions.h, of elements or vectors of f32 or
/// f64: straight-line code, but for powers in f64, which have two loops.
Value emitExp(OpBuilder &builder, Location loc, Value x);
Value emitLog(OpBuilder &builder, Location loc, Value x);
Value emitNormalQuantile(OpBuilder &builder, Location loc, Value q);
Value emitPow(OpBuilder &builder, Location loc, Value base, Value exponent);

/// Whether the operation is of elements or vectors in a function; what is of no
/// function yet is left.
bool canExpand(Operation *op);

/// Puts what `emit` gives of its operands in the place of each operation of the
/// kind `OpT`.
template <typename OpT>
void expandEach(Operation *root, function_ref<Value(OpBuilder &, OpT)> emit) {
  root->walk([&](OpT op) {
    if (!canExpand(op))
      return;
    OpBuilder builder(op);
    op->replaceAllUsesWith(ValueRange(emit(builder, op)));
    op->erase();
  });
}

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_FUNCTIONEMITTER_H
