//===- ExplainValues.h - which values are computed more than once ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_EXPLAINVALUES_H
#define STEPC_PASSES_PACKAGE_EXPLAINVALUES_H

#include "passes/package/ExplainModel.h"
#include "passes/schedule/ProgramStorage.h"

namespace mlir::step {

/// What is known of a program's values, as expressions.
struct ExplainedValues {
  /// Values of elements that more than one kernel of the program computes, each
  /// with its kernels. What is only a part of another such value in the same
  /// kernels is not listed.
  std::vector<ExplainedAgain> recomputed;
  /// By the exchange's name: "mean of grad * grad for each b, n".
  llvm::StringMap<std::string> exchanged;
};

ExplainedValues explainValues(const ProgramStorage &storage);

/// The dims as definitions write them: "[...b, n, 1]".
std::string describeDims(Type shape);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_EXPLAINVALUES_H
