//===- Rounding.h - how what is stored as bf16 is rounded -------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_BIND_ROUNDING_H
#define STEPC_PASSES_BIND_ROUNDING_H

#include "mlir/Support/LLVM.h"

namespace mlir::step {

/// The attribute of a bound rule that says how its bf16 values are to be
/// rounded, "stochastic", until step-round-stochastically has seen to it.
constexpr StringLiteral kRounding = "rounding";

/// The attribute of a bound rule, and of its program, that rounds something so.
constexpr StringLiteral kRounds = "rounds";

} // namespace mlir::step

#endif // STEPC_PASSES_BIND_ROUNDING_H
