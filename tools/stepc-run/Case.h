//===- Case.h - what to run --------------------------------------*- C++
//-*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TOOLS_STEPC_RUN_CASE_H
#define STEPC_TOOLS_STEPC_RUN_CASE_H

#include "Npy.h"

namespace stepc::run {

/// Steps of one tensor: what the command line or a line of a batch says.
struct Case {
  /// The definition or package.
  std::string input;
  /// What the names of this case's arrays begin with.
  std::string prefix;
  mlir::step::reference::Mode mode = mlir::step::reference::Mode::Exact;
  std::string rule = "any";
  std::map<std::string, double> hypers;
  std::map<std::string, bool> options;
  int64_t count = 1;
  /// None: true where no state is given.
  std::optional<bool> fresh;
  int64_t steps = 1;
  /// Storage formats by role; none: that of the array that is given. "state"
  /// is the default of the states, "state.NAME" that of one.
  std::map<std::string, Format> storages;
};

/// Sets `role` (param, grad or state) of `storages` to what a list such as
/// "f32" or, for states, "exp_avg:bf16,exp_avg_sq:f32" says.
llvm::Error parseStorages(llvm::StringRef role, llvm::StringRef text,
                          std::map<std::string, Format> &storages);

/// Reads cases, one JSON object a line; what a line does not say is as in
/// `defaults`. Errors name the line.
llvm::Expected<std::vector<Case>> readBatch(llvm::StringRef text,
                                            const Case &defaults);

/// A case together with its arrays.
struct PreparedCase {
  /// Without tensors: those are below, as they are in memory.
  mlir::step::reference::Request request;
  int64_t steps;
  Array param, grad;
  /// Those that exist, in the rule's order.
  std::vector<std::pair<std::string, Array>> states;
};

/// Picks the case's arrays, rounds them to their storage formats, and makes the
/// states that are not given. Errors name an array that is missing, or that is
/// none of the rule's.
llvm::Expected<PreparedCase> prepare(const Case &input, const ArrayMap &arrays,
                                     mlir::step::OptimizerOp optimizer);

} // namespace stepc::run

#endif // STEPC_TOOLS_STEPC_RUN_CASE_H
