//===- Case.h - what to run -------------------------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TOOLS_STEPC_RUN_CASE_H
#define STEPC_TOOLS_STEPC_RUN_CASE_H

#include "Npy.h"

namespace stepc::run {

using mlir::step::reference::GroupRequest;

/// A tensor of a case.
struct TensorCase {
  /// What the names of its arrays begin with, after the case's.
  std::string prefix;
  int64_t group = 0;
  /// Empty: the first that fits.
  std::string rule;
  int64_t count = 1;
  /// Whether the first step creates the states.
  std::optional<bool> fresh;
  /// The states that it creates. Neither: those that are not given.
  std::optional<std::set<std::string>> created;
  /// Whether it takes part in a step; the last is for all that follow. Empty:
  /// it always does.
  std::vector<bool> participates;
  /// Storage formats by role; none: that of the array that is given. "state"
  /// is the default of the states, "state.NAME" that of one.
  std::map<std::string, Format> storages;
  mlir::step::reference::Master master = mlir::step::reference::Master::None;
  /// What is stored as bf16 is rounded by random bits of this seed; none: to
  /// nearest. Tensors of a group have the same.
  std::optional<int64_t> roundingSeed;
};

/// Steps of the tensors of a model: what the command line or a line of a batch
/// says.
struct Case {
  /// The definition or package, and fragments for it.
  std::string input;
  std::vector<std::string> fragments;
  /// What the names of this case's arrays begin with.
  std::string prefix;
  mlir::step::reference::Mode mode = mlir::step::reference::Mode::Exact;
  int64_t steps = 1;
  /// The model's kept scalars; those not named have their initial values.
  std::map<std::string, double> scalars;
  /// What tensors and groups are where they do not say it themselves.
  TensorCase tensor;
  GroupRequest group;
  /// Empty: one, as `tensor` and `group` describe it.
  std::vector<TensorCase> tensors;
  std::vector<GroupRequest> groups;
};

/// Sets `role` (param, grad or state) of `storages` to what a list such as
/// "f32" or, for states, "exp_avg:bf16,exp_avg_sq:f32" says.
llvm::Error parseStorages(llvm::StringRef role, llvm::StringRef text,
                          std::map<std::string, Format> &storages);

/// Reads cases, one JSON object a line; what a line does not say is as in
/// `defaults`. Errors name the line.
llvm::Expected<std::vector<Case>> readBatch(llvm::StringRef text,
                                            const Case &defaults);

/// A tensor together with its arrays.
struct PreparedTensor {
  std::string prefix;
  /// Without tensors: those are below, as they are in memory.
  mlir::step::reference::TensorRequest request;
  Array param, grad;
  /// Gradients of steps that have one of their own, by the step's index.
  std::map<int64_t, Array> grads;
  /// Those that exist, in the rule's order.
  std::vector<std::pair<std::string, Array>> states;
  std::vector<bool> participates;

  const Array &getGrad(int64_t step) const;
  bool takesPart(int64_t step) const;
};

/// A case together with its arrays.
struct PreparedCase {
  mlir::step::reference::Mode mode;
  int64_t steps;
  std::map<std::string, double> scalars;
  std::vector<GroupRequest> groups;
  std::vector<PreparedTensor> tensors;
};

/// Picks the case's arrays, rounds them to their storage formats, and makes the
/// states that are not given. Errors name an array that is missing, or that is
/// none of the rule's.
llvm::Expected<PreparedCase> prepare(const Case &input, const ArrayMap &arrays,
                                     mlir::step::OptimizerOp optimizer);

} // namespace stepc::run

#endif // STEPC_TOOLS_STEPC_RUN_CASE_H
