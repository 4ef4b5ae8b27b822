//===- RuleCost.h - what a step of a rule costs ----------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SCHEDULE_RULECOST_H
#define STEPC_PASSES_SCHEDULE_RULECOST_H

#include "passes/schedule/MatrixWork.h"

namespace mlir::step {

/// What a step of a rule costs, one sum for each period. Without what is done
/// in steps alone that create a state: there is one of them.
struct RuleCost {
  /// Of products and decompositions.
  std::vector<WorkSum> flops;
  /// Bytes that must be read and written, where each number has four: which
  /// types they have is not known of a rule. Of the arguments, and of matrices
  /// that go into an operation or come of it.
  std::vector<WorkSum> bytes;
  /// The same of states that an option has, each with it.
  std::vector<std::pair<OptionOp, WorkSum>> guarded;
};

/// Of a rule as the define stage leaves it. What is done in some steps counts
/// with their share, by the defaults of hyper-parameters: a cost that changed
/// with their values would have tensors move from owner to owner, with their
/// states.
RuleCost getRuleCost(RuleOp rule);

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_RULECOST_H
