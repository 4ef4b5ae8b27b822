//===- ProgramBuilder.h - the program of a planned rule ---------*- C++ -*-===//
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
#include "mlir/IR/OwningOpRef.h"

namespace mlir::step {

/// Builds the `step.program` of one bound rule from its plans.
///
/// State, while operations are added from the first to the last:
/// - `values`: what each value of the rule is in the program so far. A scalar
///   is a scalar, a vector a buffer, an argument the buffer's present contents.
///   Of an AdamW whose traversal has been built, `exp_avg`'s argument is mapped
///   to the result that the traversal gave for it, and a later traversal that
///   reads the state reads that;
/// - `shares`: of a reduction that crosses ranks or has several tensors, what
///   was combined of each tensor and is to be received;
/// - `kept`: what a product needs whole, as a buffer. Of a gradient that is a
///   copy of it, so it is not what the argument is mapped to;
/// - `owned`: scalars of the cohort for which somebody asks of the tensor;
/// - `begun`: the last segment whose scalars stand;
/// - `steps`: what of the finish is still to be built, in its order.
class ProgramBuilder {
public:
  /// `transfers`: what stood around the rule's step.
  ProgramBuilder(RuleOp rule, ArrayRef<OwningOpRef<Operation *>> transfers,
                 Rounds &rounds, RuleAnalysis &analysis,
                 TraversalPlan &traversals, FinishPlan &finish);

  void build();

private:
  /// What one traversal reads, computes and leaves.
  struct Body {
    /// Values as they are read, each with its buffer.
    SmallVector<std::pair<Value, Value>> reads;
    /// Arguments whose new values are written.
    SmallVector<unsigned> stores;
    /// Vectors that become buffers.
    SmallVector<Value> made;
    SmallVector<Operation *> ops;
    SmallVector<ReductionOpInterface> reductions;
    bool isTrailing = false;
    Value unless;
  };
  struct Reduced {
    ReductionOpInterface reduction;
    SmallVector<Value> partials;
  };

  // ProgramBuilder.cpp: the order of operations.
  bool isElementwise();
  void createProgram();
  void bringGradient();
  void takeParam();
  Value buildTransfer(Operation *transfer, Value operand);
  void buildSchedule();
  void beginSegment(int64_t segment);
  void endSegment();
  void buildSteps(function_ref<bool(const Position &)> isDue);
  size_t buildTrain(size_t first);

  // ProgramTraversals.cpp: traversals, and what becomes of what they reduce.
  void buildTraversal(size_t index, SmallVectorImpl<Reduced> &waiting);
  void buildElements();
  void buildVectors(const SmallStep &step);
  SmallVector<Reduced> buildTraverse(StringRef name, Type over,
                                     const Body &body);
  void fillBody(TraverseOp traverse, const Body &body);
  void addOps(const Traversal &traversal, Body &body);
  void readArgument(unsigned argument, Value as, Body &body);
  /// The memory of a value that has some.
  Value getBuffer(Value value) const {
    auto own = kept.find(value);
    return own == kept.end() ? values.lookup(value) : own->second;
  }
  Value readElement(Value value, Value element);
  Value makeElement(Value value, Type storage);
  void buildCombine(const Reduced &reduced);
  void buildReceive(ReductionOpInterface reduction, ValueRange shares);
  Type getResultType(ReductionOpInterface reduction);

  // ProgramProducts.cpp: products, transposes and decompositions.
  void buildProduct(const SmallStep &step);
  void buildEigen(Operation *op, Value unless, IntegerAttr period);

  // ProgramScalars.cpp: scalars of the cohort and of the tensor.
  void collectCohort();
  void buildCohortScalars(int64_t segment);
  void buildCarried();
  void buildTensorScalars(const SmallStep &step);
  void buildContributions(int64_t segment);
  Value getOwn(Value value);
  void useScalars(ArrayRef<Operation *> ops, ValueRange stored,
                  TraverseOp traverse, IRMapping &mapping);

  std::string makeName(const Twine &suffix) {
    return (rule.getSymName() + suffix).str();
  }

  RuleOp rule;
  ArrayRef<OwningOpRef<Operation *>> transfers;
  Rounds &rounds;
  RuleAnalysis &analysis;
  TraversalPlan &traversals;
  FinishPlan &finish;
  OpBuilder builder;
  Type compute;
  ProgramOp program;
  IRMapping values;
  llvm::MapVector<Operation *, SmallVector<Value>> shares;
  DenseMap<Value, Value> kept;
  /// Scalars of the cohort that have become the tensor's.
  DenseMap<Value, Value> owned;
  /// Scalars of the cohort that tensors meet, by segment. Constants are none.
  SmallVector<Value> cohort;
  SmallVector<const SmallStep *> steps;
  int64_t begun = -1;
  int64_t numVectorSteps = 0;
};

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_PROGRAMBUILDER_H
