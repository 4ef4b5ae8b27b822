//===- StochasticRound.h - rounding by random bits --------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_DIALECT_OPS_STOCHASTICROUND_H
#define STEPC_DIALECT_OPS_STOCHASTICROUND_H

#include "mlir/IR/Builders.h"

namespace mlir::step {

/// What step.round_stochastic takes, as scalar code: an f32, and three i64.
struct StochasticRound {
  Value value, position, seed, count;
};

/// Emits step.round_stochastic of one element that becomes the state `name`, or
/// the parameter where that is empty. Returns the bf16 as an f32.
Value emitStochasticRound(OpBuilder &builder, Location loc,
                          const StochasticRound &round, StringRef name);

} // namespace mlir::step

#endif // STEPC_DIALECT_OPS_STOCHASTICROUND_H
