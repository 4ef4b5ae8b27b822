//===- ModelStep.h - one step of several tensors -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_MODELSTEP_H
#define STEPC_DIALECT_REFERENCE_MODELSTEP_H

#include "dialect/reference/TensorStep.h"

#include <deque>

namespace mlir::step::reference {

/// One step of several tensors: round by round what is made of statistics, then
/// the tensors' new values.
class ModelStep {
public:
  ModelStep(OptimizerOp optimizer, ModelRequest request)
      : source(optimizer), request(std::move(request)) {}

  llvm::Expected<ModelOutcome> run();

private:
  /// Stands for the model where a group is asked for.
  static constexpr size_t kModel = ~size_t(0);

  llvm::Error bind();
  llvm::Error checkEqual(ScalarsOp scalars);
  /// Whether a tensor of the group takes part, or any.
  bool isActive(size_t group) const;
  bool isBound() const { return request.mode == Mode::Bound; }
  void prepareReports();
  void setReport(const std::string &name, size_t group, Interval value);
  void setScalar(const std::string &name, size_t group, Interval value);
  llvm::Error runRound(ArrayRef<ScalarsOp> round);
  llvm::Error runScalars(ScalarsOp scalars, size_t group);
  llvm::Error applyEffect(Operation *op, size_t group, const Frame &local);
  llvm::Error computeStatistic(StatisticOp statistic, size_t group);
  void updateScalars();
  llvm::Error finishTensors();

  Frame &getFrame(size_t group) {
    return group == kModel ? model : groups[group];
  }

  Source source;
  ModelRequest request;
  Frame model;
  /// Tensors hold references into both.
  std::deque<Frame> groups;
  std::deque<TensorStep> tensors;

  /// A new value of a kept scalar.
  struct Update {
    UpdateOp op;
    size_t group;
    Interval value;
  };
  std::vector<Update> updates;
  ModelOutcome outcome;
};

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_MODELSTEP_H
