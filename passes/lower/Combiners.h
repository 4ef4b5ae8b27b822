//===- Combiners.h - partial results, one with another ----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_COMBINERS_H
#define STEPC_PASSES_LOWER_COMBINERS_H

#include "passes/lower/Words.h"

namespace mlir::step {

/// The f64, or the vector of f64, that changes nothing: +0.0 or -Inf.
Value emitNeutral(const Words &w, Combiner combiner, int64_t lanes);

/// Two partial results made one.
Value emitCombined(const Words &w, Combiner combiner, Value x, Value y);

/// The value of a lane or an element, of the compute type, as f64.
Value emitWidened(const Words &w, Value value);

/// The f64 as it crosses ranks: itself; for a maximum the integer that orders
/// as the f64 does, -0.0 below +0.0 and any NaN above all.
Value emitSent(const Words &w, Combiner combiner, Value value);

/// Entry `index` of an exchange at an address, as f64 again.
Value emitReceived(const Words &w, Combiner combiner, Value address,
                   Value index);

/// The same of several exchanges, combined in the order of their addresses.
Value emitReceived(const Words &w, Combiner combiner, ArrayRef<Value> addresses,
                   Value index);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_COMBINERS_H
