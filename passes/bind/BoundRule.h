//===- BoundRule.h - what holds of a rule after the bind stage ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_PASSES_BIND_BOUNDRULE_H
#define STEPC_PASSES_BIND_BOUNDRULE_H

#include "dialect/Step.h"

namespace mlir::step {

/// Refuses a rule that is not what the bind stage leaves, and the schedule
/// stage builds on: bound, no storage wider than the compute type, no guarded
/// state, no option used, nothing left to be stored.
LogicalResult verifyBoundRule(RuleOp rule);

/// The argument of that kind; where the rule has none it gets one, and a
/// tensor's storage type.
BlockArgument getOrAddArgument(RuleOp rule, RoleKind kind, Type type,
                               Type storage = {});

/// Where each element of the param stands among those of all tensors.
BlockArgument getPosition(RuleOp rule);

} // namespace mlir::step

#endif // STEPC_PASSES_BIND_BOUNDRULE_H
