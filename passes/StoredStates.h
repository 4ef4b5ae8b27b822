//===- StoredStates.h - taking states out of a rule -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_STOREDSTATES_H
#define STEPC_PASSES_STOREDSTATES_H

#include "dialect/Step.h"

namespace mlir::step {

/// Returns nothing any more for the arguments `absent`, ascending indices of
/// states, and rounds nothing for them. Roles in marks are those that they
/// become when the arguments are erased.
void dropStoredValues(RuleOp rule, ArrayRef<unsigned> absent);

/// The attribute of a rule that names the states that it declared and that
/// nothing depends on. A request may name these still.
constexpr StringLiteral kDroppedStates = "dropped_states";

/// Erases the arguments `absent`, which nothing uses, with their guards; no
/// fresh speaks of them any more.
void eraseStates(RuleOp rule, ArrayRef<unsigned> absent);

} // namespace mlir::step

#endif // STEPC_PASSES_STOREDSTATES_H
