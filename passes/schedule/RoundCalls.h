//===- RoundCalls.h - rounds as the runtime sees them -----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SCHEDULE_ROUNDCALLS_H
#define STEPC_PASSES_SCHEDULE_ROUNDCALLS_H

#include "dialect/Step.h"

#include <string>
#include <vector>

namespace mlir::step {

/// One `step.scalars` of a scheduled optimizer. Results are numbered in the
/// order of the operations, and reports behind all results.
struct RoundCall {
  ScalarsOp op;
  int64_t round = 0;
  std::string function;
  int64_t firstResult = 0;
  int64_t firstReport = 0;
};

/// All calls, those of a round in the order of the operations.
std::vector<RoundCall> getRoundCalls(OptimizerOp optimizer);

/// How many rounds a step has, those included that only exchange.
int64_t countRounds(OptimizerOp optimizer);

/// The numbers of results of all `step.scalars`, and of reports.
int64_t countResults(OptimizerOp optimizer);
int64_t countReports(OptimizerOp optimizer);

/// The place of a kept scalar among those of the optimizer.
int64_t getScalarIndex(OptimizerOp optimizer, ScalarOp scalar);

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_ROUNDCALLS_H
