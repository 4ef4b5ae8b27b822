//===- Interpreter.h - the meaning of a definition --------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs an optimizer and its fragments as they are written, operation by
// operation on whole tensors. It knows nothing of passes, and is what compiled
// code is compared with: in exact mode every result has the same bits.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_INTERPRETER_H
#define STEPC_DIALECT_REFERENCE_INTERPRETER_H

#include "dialect/Step.h"
#include "dialect/reference/Bounds.h"
#include "dialect/reference/Masters.h"

#include "llvm/Support/Error.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace mlir::step::reference {

enum class Mode {
  /// Every operation on tensors is rounded to the compute format, and new
  /// values to the storage formats of what they become.
  Exact,
  /// Everything is computed and kept in f64, whatever the formats say.
  F64,
  /// Intervals in f64 that hold what any code may compute that rounds each
  /// operation once: see Interval.h. What the step begins with is exact.
  Bound,
};

/// A tensor together with the format that it is stored in.
struct StoredTensor {
  Tensor tensor;
  Format storage = Format::F32;
};

/// What an option is set to.
using OptionValue = std::variant<bool, int64_t>;

/// One step of one tensor.
struct Request {
  Mode mode = Mode::Exact;
  Format compute = Format::F32;
  /// Empty: the first that the param's shape fits and whose conditions hold.
  std::string rule;
  /// By name; hyper-parameters and options not named have their defaults.
  std::map<std::string, double> hypers;
  std::map<std::string, OptionValue> options;
  /// The number of this step: 1 in the tensor's first.
  int64_t count = 1;
  /// True in the step that creates all states.
  bool fresh = false;
  StoredTensor param, grad;
  /// By name: exactly those that exist under the options.
  std::map<std::string, StoredTensor> states;
};

/// Tensors that share their hyper-parameters. What is not named has its
/// default, kept scalars their initial value.
struct GroupRequest {
  std::map<std::string, double> hypers;
  std::map<std::string, OptionValue> options;
  std::map<std::string, double> scalars;
  /// What was reported before; NaN where nothing was.
  std::map<std::string, double> reports;
};

/// A tensor's part in a step of several; as in Request.
struct TensorRequest {
  size_t group = 0;
  /// False: the tensor is bound and takes no part in this step.
  bool participates = true;
  Format compute = Format::F32;
  /// In exact mode, of a param stored as bf16: the rule is run as one of an f32
  /// param, and `states` has one more, which this names.
  Master master = Master::None;
  /// In exact mode: what is stored as bf16 in the param and in states of its
  /// dims is rounded by random bits of this seed (step.round_stochastic); none:
  /// to nearest. The tensor's number is its place in the model, from 1 on.
  std::optional<uint64_t> roundingSeed;
  std::string rule;
  int64_t count = 1;
  bool fresh = false;
  /// The states that the step creates where it does not create all.
  std::set<std::string> created;
  StoredTensor param, grad;
  std::map<std::string, StoredTensor> states;
};

/// One step of several tensors, in the order in which they were bound.
struct ModelRequest {
  Mode mode = Mode::Exact;
  /// The model's kept scalars.
  std::map<std::string, double> scalars;
  /// As in GroupRequest.
  std::map<std::string, double> reports;
  std::vector<GroupRequest> groups;
  std::vector<TensorRequest> tensors;
};

/// What a step makes of its tensors.
struct Outcome {
  Tensor param;
  std::map<std::string, Tensor> states;
  /// In bound mode these in their place.
  Bounds paramBounds;
  std::map<std::string, Bounds> stateBounds;
};

/// Elements of results of signs, comparisons with what takes them, and tests
/// for finite numbers, and how many of them could be either.
struct Jumps {
  int64_t elements = 0;
  int64_t open = 0;
};

/// What a step of several tensors leaves.
struct ModelOutcome {
  /// True where the step changed nothing but scalars updated `always`.
  bool skipped = false;
  /// As many as there are tensors: what they are now.
  std::vector<Outcome> tensors;
  /// Kept scalars by name, of the model and of each group, for the next step.
  std::map<std::string, double> scalars;
  std::vector<std::map<std::string, double>> groupScalars;
  /// Reports of the model and of each group. What the step did not come to, in
  /// a round after the one that skipped it or of a group of which no tensor
  /// took part, stays as the request has it.
  std::map<std::string, double> reports;
  std::vector<std::map<std::string, double>> groupReports;
  /// In bound mode also these; the numbers above are their lower ends.
  std::map<std::string, Interval> scalarBounds, reportBounds;
  std::vector<std::map<std::string, Interval>> groupScalarBounds,
      groupReportBounds;
  Jumps jumps;
};

/// A state as it is before a tensor's first step.
struct InitialState {
  std::string name;
  Tensor tensor;
};

/// Runs one step of one tensor, alone in its model. Errors name what is wrong
/// with the request: an unknown or derived name, a tensor whose shape does not
/// fit the rule's dims, a missing or superfluous state, an element that its
/// storage format does not have, a new value that needs a state which does not
/// exist; or say that the definition is not a source, or that the host's
/// floating-point mode is not the default one.
llvm::Expected<Outcome> interpret(OptimizerOp optimizer,
                                  const Request &request);

/// Runs one step of several tensors, with the fragments that stand beside the
/// optimizer in front of their gradients. Errors are those of `interpret`.
llvm::Expected<ModelOutcome> interpretStep(OptimizerOp optimizer,
                                           const ModelRequest &request);

/// The name of the rule that takes the tensor.
llvm::Expected<std::string> findRule(OptimizerOp optimizer,
                                     const GroupRequest &group,
                                     const TensorRequest &request);

/// The states that exist under the request's options, in the rule's order,
/// with the shapes that follow from the param. `request.states` is not read.
llvm::Expected<SmallVector<InitialState>>
makeInitialStates(OptimizerOp optimizer, const Request &request);
llvm::Expected<SmallVector<InitialState>>
makeInitialStates(OptimizerOp optimizer, const GroupRequest &group,
                  const TensorRequest &request);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_INTERPRETER_H
