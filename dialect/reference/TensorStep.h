//===- TensorStep.h - one tensor in a step -----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_TENSORSTEP_H
#define STEPC_DIALECT_REFERENCE_TENSORSTEP_H

#include "dialect/reference/Environment.h"
#include "dialect/reference/Shapes.h"

namespace mlir::step::reference {

/// One tensor and its rule. What a value stands for is computed when it is
/// asked for; a value that depends on a round can be after that round.
class TensorStep {
public:
  /// `number` is the tensor's in the model. With `jumps` in bound mode.
  TensorStep(const Source &source, const TensorRequest &request,
             uint64_t number, const Frame &group, Jumps *jumps = nullptr)
      : source(source), request(request), number(number), jumps(jumps) {
    frame.outer = &group;
  }

  /// Chooses the rule, binds its dims, and says which states are absent.
  llvm::Error bind();

  /// Gives the tensor arguments their values, in the compute format. Must come
  /// after bind.
  llvm::Error bindTensors();

  /// What the tensor contributes; none where its rule does not.
  llvm::Expected<std::optional<Interval>> contribute(StatisticOp statistic);

  /// The new values, in their storage formats.
  llvm::Expected<Outcome> finish();

  /// Once bound.
  StringRef getRuleName() { return rule.getSymName(); }

  /// The states that exist, as they are before the first step.
  SmallVector<InitialState> makeInitialStates();

private:
  /// A storage format, and the first of the roles that have it: the name of a
  /// state, or empty for the param.
  struct Stored {
    Format format;
    StringRef name;
  };

  static RoleAttr getRole(BlockArgument argument);
  /// The rule's arguments, and the states of fragments that come after it.
  SmallVector<BlockArgument> getArguments();
  /// What is returned for which of them.
  SmallVector<std::pair<BlockArgument, Value>> getReturned();

  llvm::Error bindDims();
  void bindArguments();
  void bindFreshes(RuleOp one);
  bool isFresh(StringRef state) const {
    return request.fresh || request.created.count(state.str());
  }
  llvm::Error bindTensor(BlockArgument argument, const StoredTensor &stored);
  llvm::Error checkShape(BlockArgument argument, const Tensor &tensor);
  bool isAbsent(BlockArgument argument);
  llvm::Expected<StoredTensor> readMaster();
  void writeMaster(Outcome &outcome);
  llvm::Error findStoredValues();
  Tensor round(Value value, const Stored &storage, Tensor tensor);
  llvm::Error evaluate(Value value);
  llvm::Error evaluateArgument(BlockArgument argument);
  llvm::Error evaluateResult(OpResult result);
  llvm::Error evaluateWhen(WhenOp when, OpResult result);
  Datum store(Value value, Datum datum);
  llvm::Expected<Datum> evaluateOperation(Operation *op, const Frame &operands);
  llvm::Error evaluateReassociable(ReductionOpInterface reduction,
                                   Datum &datum);
  llvm::Expected<Datum> collect(BlockArgument argument, Value value);

  const Source &source;
  const TensorRequest &request;
  uint64_t number;
  Jumps *jumps;
  RuleOp rule;
  Shapes shapes;
  Frame frame;
  /// Of the tensor arguments that exist.
  DenseMap<Value, Format> storages;
  /// Of each value that the return stores in something that exists; the
  /// narrowest where it stores the value twice.
  DenseMap<Value, Stored> stored;
  /// Operations that stand for those of the source.
  Block scratch;
};

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_TENSORSTEP_H
