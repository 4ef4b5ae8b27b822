//===- Execute.h - runs cases -----------------------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TOOLS_STEPC_RUN_EXECUTE_H
#define STEPC_TOOLS_STEPC_RUN_EXECUTE_H

#include "Case.h"

#include "stepc/stepc.h"

namespace stepc::run {

/// Runs the case's steps in the interpreter. The result has of each tensor an
/// array "param" and one of each state's name, with the tensor's prefix; and
/// float64 arrays with a number for each step, or a row of one for each group:
/// "report:NAME", "scalar:NAME" (after the step), and "step:skipped" where the
/// definition can skip steps.
llvm::Expected<ArrayMap> interpretCase(mlir::step::OptimizerOp optimizer,
                                       const PreparedCase &prepared);

/// Runs the case's steps by the runtime: the same arrays, but for states that
/// the compiler left out because nothing depends on them.
llvm::Expected<ArrayMap> launchCase(StepcPackage *package,
                                    const PreparedCase &prepared);

/// Compares what the two made of a case: any NaN equals any NaN, otherwise the
/// bits. Prints a line for each array that differs, with how many elements do
/// and the first that does. Returns whether all are equal.
bool compareResults(llvm::StringRef prefix, const ArrayMap &interpreted,
                    const ArrayMap &compiled, llvm::raw_ostream &out);

} // namespace stepc::run

#endif // STEPC_TOOLS_STEPC_RUN_EXECUTE_H
