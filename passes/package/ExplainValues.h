//===- ExplainValues.h - which values are computed more than once ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_EXPLAINVALUES_H
#define STEPC_PASSES_PACKAGE_EXPLAINVALUES_H

#include "passes/package/ExplainModel.h"

namespace mlir::step {

/// Values of elements that more than one kernel of the program computes, as
/// expressions, each with its kernels. What is only a part of another such
/// value in the same kernels is not listed.
std::vector<ExplainedAgain> findRecomputed(OptimizerOp optimizer,
                                           ProgramOp program);

/// The dims as definitions write them: "[...b, n, 1]".
std::string describeDims(Type shape);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_EXPLAINVALUES_H
