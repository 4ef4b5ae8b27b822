//===- Interpreter.h - the meaning of a definition ---------------*- C++
//-*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs a rule of an optimizer as it is written, operation by operation on whole
// tensors. It knows nothing of passes, and is what compiled code is compared
// with: in exact mode every result has the same bits.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_INTERPRETER_H
#define STEPC_DIALECT_REFERENCE_INTERPRETER_H

#include "dialect/Step.h"
#include "dialect/reference/Tensor.h"

#include "llvm/Support/Error.h"

#include <map>

namespace mlir::step::reference {

enum class Mode {
  /// Every operation on tensors is rounded to the compute format, and new
  /// values to the storage formats of what they become.
  Exact,
  /// Everything is computed and kept in f64, whatever the formats say.
  F64,
};

/// A tensor together with the format that it is stored in.
struct StoredTensor {
  Tensor tensor;
  Format storage = Format::F32;
};

/// One step of one tensor.
struct Request {
  Mode mode = Mode::Exact;
  Format compute = Format::F32;
  std::string rule = "any";
  /// By name; hyper-parameters and options not named have their defaults.
  std::map<std::string, double> hypers;
  std::map<std::string, bool> options;
  /// The number of this step: 1 in the tensor's first.
  int64_t count = 1;
  /// True in the step that creates the states.
  bool fresh = false;
  StoredTensor param, grad;
  /// By name: exactly those that exist under the options.
  std::map<std::string, StoredTensor> states;
};

/// What a step makes of its tensors.
struct Outcome {
  Tensor param;
  std::map<std::string, Tensor> states;
};

/// A state as it is before a tensor's first step.
struct InitialState {
  std::string name;
  Tensor tensor;
};

/// Runs one step. Errors name what is wrong with the request: an unknown or
/// derived name, a tensor whose shape does not fit the rule's dims, a missing
/// or superfluous state, an element that its storage format does not have, a
/// new value that needs a state which does not exist; or say that the
/// definition is not a source, or that the host's floating-point mode is not
/// the default one.
llvm::Expected<Outcome> interpret(OptimizerOp optimizer,
                                  const Request &request);

/// The states that exist under the request's options, in the rule's order,
/// with the shapes that follow from the param. `request.states` is not read.
llvm::Expected<SmallVector<InitialState>>
makeInitialStates(OptimizerOp optimizer, const Request &request);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_INTERPRETER_H
