//===- ExplainRounds.h - what is done between the segments of a step ------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_EXPLAINROUNDS_H
#define STEPC_PASSES_PACKAGE_EXPLAINROUNDS_H

#include "passes/package/ExplainModel.h"
#include "passes/package/ExplainValues.h"

namespace mlir::step {

/// The rounds of a step with their calls, those that only exchange included.
std::vector<ExplainedEntry> describeRounds(OptimizerOp optimizer);

/// "n over dp, m over tp"; empty where every rank has whole tensors.
std::string describeLayout(LayoutAttr layout);

/// Layouts in whose place the program steps whole tensors, and what moves.
std::vector<ExplainedOwner> describeOwners(ProgramOp program);

/// What crosses ranks of a tensor of the program, in the order of the
/// workspace.
std::vector<ExplainedExchange> describeExchanges(ProgramOp program,
                                                 const ExplainedValues &values);

/// What is reduced together, of all programs and statistics, by rounds; nothing
/// where no program is of a sharded tensor.
std::vector<ExplainedReduction>
collectReductions(OptimizerOp optimizer,
                  const std::vector<ExplainedProgram> &programs);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_EXPLAINROUNDS_H
