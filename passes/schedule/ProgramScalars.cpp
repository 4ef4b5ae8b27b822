//===- ProgramScalars.cpp - the scalars of a planned rule -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ProgramBuilder.h"
#include "passes/schedule/ScalarCode.h"
#include "passes/shard/Sharding.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::step;

/// Those that something of another domain uses, ordered by segment.
void ProgramBuilder::collectCohort() {
  llvm::SetVector<Value> met;
  auto meet = [&](Value value) {
    if (analysis.getDomain(value) == Domain::Cohort)
      met.insert(value);
  };
  for (Operation &op : rule.getBody().front().without_terminator()) {
    if (auto contribute = dyn_cast<ContributeOp>(op))
      meet(contribute.getValue());
    else if (auto carry = dyn_cast<CarryOp>(op))
      meet(carry.getValue());
    else if (op.getNumResults() == 1 &&
             analysis.getDomain(op.getResult(0)) != Domain::Cohort)
      llvm::for_each(op.getOperands(), meet);
  }
  cohort = met.takeVector();
  llvm::stable_sort(cohort, [&](Value a, Value b) {
    return rounds.getSegment(a) < rounds.getSegment(b);
  });
}

void ProgramBuilder::buildCohortScalars(int64_t segment) {
  SmallVector<Value> own = llvm::filter_to_vector(
      cohort, [&](Value value) { return rounds.getSegment(value) == segment; });
  if (segment > 0 && own.empty())
    return;
  std::string suffix =
      segment ? "_scalars" + std::to_string(segment) : std::string("_scalars");
  auto scalars = CohortScalarsOp::create(
      builder, rule.getLoc(), ValueRange(own).getTypes(), makeName(suffix));
  OpBuilder::InsertionGuard guard(builder);
  builder.createBlock(&scalars.getBody());
  // Hyper-parameters, kept scalars and results of rounds are used as they are.
  IRMapping mapping;
  auto getScalar = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument)
      mapping.map(value,
                  program.getBody().getArgument(argument.getArgNumber()));
    else if (!mapping.contains(value) && !value.getDefiningOp<ConstantOp>())
      mapping.map(value, value);
    return mapOrMaterialize(builder, value, mapping, builder.getF64Type());
  };
  for (Operation &op : rule.getBody().front().without_terminator()) {
    if (op.getNumResults() != 1 ||
        analysis.getDomain(op.getResult(0)) != Domain::Cohort ||
        rounds.getSegment(op.getResult(0)) > segment)
      continue;
    llvm::for_each(op.getOperands(), getScalar);
    mapping.map(op.getResult(0),
                emitScalarCode(builder, &op, mapping, builder.getF64Type()));
  }
  SmallVector<Value> yielded = llvm::map_to_vector(own, getScalar);
  YieldOp::create(builder, rule.getLoc(), yielded);
  for (auto [value, result] : llvm::zip(own, scalars.getScalars()))
    values.map(value, result);
}

void ProgramBuilder::buildCarried() {
  for (auto carried : rule.getBody().front().getOps<CarriedOp>())
    values.map(carried.getResult(), builder.clone(*carried)->getResult(0));
}

/// In the program itself; and what is carried to the next step.
void ProgramBuilder::buildTensorScalars(const SmallStep &step) {
  Type f64 = builder.getF64Type();
  for (Operation *op : step.ops)
    values.map(op->getResult(0),
               isa<ExtentOp>(op) ? builder.clone(*op)->getResult(0)
                                 : emitScalarCode(builder, op, values, f64));
  auto getScalar = [&](Value value) {
    return mapOrMaterialize(builder, value, values, f64);
  };
  for (CarryOp carry : step.carries)
    CarryOp::create(builder, carry.getLoc(), getScalar(carry.getValue()),
                    getScalar(carry.getCarried()),
                    getScalar(carry.getRecomputed()));
}

void ProgramBuilder::buildContributions(int64_t segment) {
  for (auto contribute : rule.getBody().front().getOps<ContributeOp>()) {
    Value value = contribute.getValue();
    if (analysis.getTime(value).segment != segment)
      continue;
    SmallVector<Attribute> partial;
    llvm::append_range(partial, getPartialDims(rule, value));
    ContributeOp::create(
        builder, contribute.getLoc(), contribute.getStatistic(), getOwn(value),
        partial.empty() ? ArrayAttr() : builder.getArrayAttr(partial));
  }
}

/// The scalar as one of the tensor.
Value ProgramBuilder::getOwn(Value value) {
  if (analysis.getDomain(value) == Domain::Tensor)
    return values.lookup(value);
  Value &own = owned[value];
  if (!own)
    own = OwnOp::create(
        builder, value.getLoc(),
        mapOrMaterialize(builder, value, values, builder.getF64Type()));
  return own;
}

/// Gives the traversal the scalars that its operations, or what it stores, use.
void ProgramBuilder::useScalars(ArrayRef<Operation *> ops, ValueRange stored,
                                TraverseOp traverse, IRMapping &mapping) {
  auto use = [&](Value value) {
    Domain domain = analysis.getDomain(value);
    if ((domain != Domain::Cohort && domain != Domain::Tensor) ||
        mapping.contains(value))
      return;
    Value scalar = values.lookup(value);
    Type type = scalar.getType().isF64() ? compute : scalar.getType();
    traverse.getScalarsMutable().append(scalar);
    mapping.map(value, traverse.getBody().addArgument(type, value.getLoc()));
  };
  for (Operation *op : ops)
    llvm::for_each(op->getOperands(), use);
  llvm::for_each(stored, use);
}
