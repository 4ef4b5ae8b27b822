//===- ProgramBuilder.h - the program of a planned rule ----------*- C++
//-*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SCHEDULE_PROGRAMBUILDER_H
#define STEPC_PASSES_SCHEDULE_PROGRAMBUILDER_H

#include "passes/schedule/FinishPlan.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::step {

/// Builds the `step.program` of one bound rule from its plans. State:
/// - `slots`: the scalars of the cohort that tensors meet, ordered by segment;
///   the position is the slot of the scalar row. Constants are no slots.
/// - `tensorSlots`: the same of the tensor, after FinishPlan.
/// - `operands`: the tensors in memory, in the order of the rule's arguments.
/// - `temps`: an operand for each kept vector.
class ProgramBuilder {
public:
  ProgramBuilder(RuleOp rule, Rounds &rounds, RuleAnalysis &analysis,
                 TraversalPlan &traversals, FinishPlan &finish);

  void build();

private:
  static Combiner getCombiner(ReductionOpInterface reduction) {
    return reduction.getReductionKind() == ReductionKind::Amax ? Combiner::Amax
                                                               : Combiner::Sum;
  }

  /// What one phase reads, computes, writes and accumulates.
  struct Body {
    /// Operands in the order in which their elements are read and written, and
    /// the value that each element is when read, or becomes when written.
    SmallVector<Attribute> operands;
    SmallVector<Value> reads, writes;
    SmallVector<Operation *> ops;
    SmallVector<ReductionOpInterface> reductions;
    /// The slot of the tensor by which it is left out; null: it never is.
    IntegerAttr unless;
    bool isTrailing = false;
  };

  void collectSlots();
  void collectOperands();
  void collectBuffers();
  bool isElementwise();
  SmallVector<int64_t> getContributions();
  SmallVector<int64_t> getPartialStatistics();
  SmallVector<int64_t> getCarried();
  ArrayAttr getFresh();

  void buildScalarPhase(int64_t segment);
  size_t buildTrain(size_t first);
  void buildTraversal(size_t index);
  void buildElements();
  void buildSteps(function_ref<bool(const Position &)> isDue);
  void buildStep(const SmallStep &step);
  void buildTensorScalars(const SmallStep &step);
  void buildPhase(StringRef name, Space space, int64_t segment, Body &body);
  void buildCombine(ReductionOpInterface reduction, Space space,
                    int64_t segment);
  void buildReceive(ReductionOpInterface reduction, int64_t segment);
  void buildReceives(int64_t segment);
  void beginSegment(int64_t segment);

  OperandAttr getTemp(Value value) const;
  IntegerAttr getSlot(Value value);
  int64_t getSlotNumber(Value value) const;
  OperandAttr getOperand(unsigned argument, bool reads, bool writes) const;
  Value addArgument(Block *block, Value value, Type storage);
  void addSlotArguments(Block *block, IRMapping &mapping, Type element);
  Value emitStored(Value value, Type storage);
  /// One for each tensor that is reduced.
  std::vector<std::string> getPartialNames(ReductionOpInterface reduction);
  /// Where what is combined of each of these waits for `step.receive`: for the
  /// ranks, or for the others. None where nothing is to be waited for.
  std::vector<std::string> getWholeNames(ReductionOpInterface reduction);
  bool isFlatRange();
  std::string makeName(const Twine &suffix) {
    return (program.getSymName() + suffix).str();
  }

  RuleOp rule;
  Rounds &rounds;
  RuleAnalysis &analysis;
  TraversalPlan &traversals;
  FinishPlan &finish;
  OpBuilder builder;
  Type compute;
  ProgramOp program;
  SmallVector<Value> slots;
  SmallVector<Attribute> operands, buffers;
  DenseMap<Value, unsigned> tempNumbers;
  /// Of the first tensor of each reduction; those of the others follow.
  DenseMap<Operation *, unsigned> partialNumbers;
  /// What is still to be built of the finish, in its order.
  SmallVector<const SmallStep *> steps;
  /// Segments whose scalar phase stands.
  int64_t begun = -1;
  int64_t numSmallPhases = 0;
};

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_PROGRAMBUILDER_H
