//===- ProgramBuilder.cpp - the program of a planned rule -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ProgramBuilder.h"

#include "passes/bind/Rounding.h"
#include "passes/shard/Sharding.h"

using namespace mlir;
using namespace mlir::step;

ProgramBuilder::ProgramBuilder(RuleOp rule,
                               ArrayRef<OwningOpRef<Operation *>> transfers,
                               Rounds &rounds, RuleAnalysis &analysis,
                               TraversalPlan &traversals, FinishPlan &finish)
    : rule(rule), transfers(transfers), rounds(rounds), analysis(analysis),
      traversals(traversals), finish(finish), builder(rule.getContext()),
      compute(rule.getVariantAttr().getCompute()) {}

/// One traversal does all, and nothing but elements and scalars of the cohort
/// is needed, whatever other rules exchange.
bool ProgramBuilder::isElementwise() {
  for (BlockArgument argument : rule.getBody().getArguments())
    if (isShaped(argument.getType()) &&
        analysis.getDomain(argument) != Domain::Full)
      return false;
  return finish.getSteps().empty() && !finish.hasScalars() &&
         traversals.getTraversals().size() <= 1 &&
         rounds.getScalarsOps().empty();
}

/// With the rule's arguments, tensors as buffers.
void ProgramBuilder::createProgram() {
  bool elementwise = isElementwise();
  VariantAttr variant = rule.getVariantAttr();
  // Elements are the same wherever they lie, and nothing has to be brought.
  if (elementwise && transfers.empty())
    variant =
        VariantAttr::get(builder.getContext(), variant.getRule(),
                         variant.getOptions(), variant.getCompute(), {}, {});
  SmallVector<Attribute> roles;
  SmallVector<Type> types;
  SmallVector<Location> locations;
  for (BlockArgument argument : rule.getBody().getArguments()) {
    RoleAttr role = rule.getRole(argument.getArgNumber()).withoutGuard();
    Type type = argument.getType();
    if (role.isTensor())
      type = BufferType::get(builder.getContext(), getDims(type),
                             role.getStorage());
    if (role.getKind() == RoleKind::Fresh && !role.getStates())
      role = role.withStates(rule.getStateNames());
    roles.push_back(role);
    types.push_back(type);
    locations.push_back(argument.getLoc());
  }
  SmallVector<Attribute> bound;
  for (const BoundDim &dim : rule.getRuleDims())
    bound.push_back(dim.attr.getName());
  builder.setInsertionPoint(rule);
  program = ProgramOp::create(
      builder, rule.getLoc(), rule.getSymName(), builder.getArrayAttr(roles),
      variant, elementwise,
      bound.empty() ? ArrayAttr() : builder.getArrayAttr(bound), StringAttr());
  for (StringRef kept : {kOwnedLayouts, kRounds})
    if (Attribute attribute = rule->getAttr(kept))
      program->setAttr(kept, attribute);
  Block *block = builder.createBlock(&program.getBody(), {}, types, locations);
  values.map(rule.getBody().getArguments(), block->getArguments());
}

/// The same operation on a buffer.
Value ProgramBuilder::buildTransfer(Operation *transfer, Value operand) {
  OperationState state(transfer->getLoc(), transfer->getName(), operand,
                       operand.getType(), transfer->getAttrs());
  return builder.create(state)->getResult(0);
}

void ProgramBuilder::bringGradient() {
  Value argument = rule.getArgumentOfKind(RoleKind::Grad);
  for (const OwningOpRef<Operation *> &op : transfers)
    if (cast<TransferOpInterface>(*op).isOfGradient())
      values.map(argument, buildTransfer(*op, values.lookup(argument)));
}

void ProgramBuilder::takeParam() {
  Value param = program.getParam();
  for (auto traverse : program.getBody().getOps<TraverseOp>())
    for (auto [buffer, result] :
         llvm::zip(traverse.getWrites(), traverse.getWritten()))
      if (getMemory(buffer) == program.getParam())
        param = result;
  for (const OwningOpRef<Operation *> &op : transfers)
    if (!cast<TransferOpInterface>(*op).isOfGradient())
      param = buildTransfer(*op, param);
}

/// What a segment leaves for the round behind it.
void ProgramBuilder::endSegment() {
  buildContributions(begun);
  SmallVector<Value> sent;
  SmallVector<Attribute> over;
  SmallVector<Operation *> reductions;
  for (auto &[op, own] : shares) {
    auto reduction = cast<ReductionOpInterface>(op);
    if (!reduction.getAcrossAttr() ||
        analysis.getTime(op->getResult(0)).segment != begun + 1)
      continue;
    reductions.push_back(op);
    SmallVector<Attribute> dims;
    llvm::append_range(dims, getCrossedDims(rule, reduction));
    for (Value share : own) {
      sent.push_back(share);
      over.push_back(builder.getArrayAttr(dims));
    }
  }
  auto exchange =
      ExchangeOp::create(builder, rule.getLoc(), ValueRange(sent).getTypes(),
                         begun, sent, builder.getArrayAttr(over));
  ValueRange received = exchange.getResults();
  for (Operation *op : reductions) {
    size_t count = shares[op].size();
    shares[op] = llvm::to_vector(received.take_front(count));
    received = received.drop_front(count);
  }
}

void ProgramBuilder::beginSegment(int64_t segment) {
  while (begun < segment) {
    if (begun >= 0)
      endSegment();
    buildCohortScalars(++begun);
    if (begun == 0)
      buildCarried();
    // What the round before reduced over ranks, in the order of the rule.
    for (auto reduction : rule.getBody().front().getOps<ReductionOpInterface>())
      if (reduction.getAcrossAttr() &&
          analysis.getTime(reduction->getResult(0)).segment == begun)
        buildReceive(reduction, shares[reduction]);
  }
}

/// Builds those that are due and not yet built.
void ProgramBuilder::buildSteps(function_ref<bool(const Position &)> isDue) {
  SmallVector<const SmallStep *> left;
  for (const SmallStep *step : steps) {
    if (!isDue(step->position)) {
      left.push_back(step);
      continue;
    }
    beginSegment(step->position.time.segment);
    if (step->domain == Domain::Tensor)
      buildTensorScalars(*step);
    else if (step->domain.kind == Domain::Matrix)
      buildProduct(*step);
    else
      buildVectors(*step);
  }
  steps = std::move(left);
}

/// A traversal and those that trail it: between them stands only what is of
/// their rows. Returns the index of the next.
size_t ProgramBuilder::buildTrain(size_t first) {
  ArrayRef<Traversal> all = traversals.getTraversals();
  buildSteps([&](const Position &position) {
    return position.time <= all[first].time;
  });
  beginSegment(all[first].time.segment);
  SmallVector<Reduced> waiting;
  size_t next = first;
  do {
    if (next > first)
      buildSteps([&](const Position &position) {
        return position == Position{all[next].time, kRowBlock};
      });
    buildTraversal(next, waiting);
    ++next;
  } while (next < all.size() && all[next].isTrailing);
  for (const Reduced &reduced : waiting)
    buildCombine(reduced);
  return next;
}

void ProgramBuilder::build() {
  collectCohort();
  createProgram();
  bringGradient();
  beginSegment(0);
  if (program.getElementwise())
    buildElements();
  else
    buildSchedule();
  takeParam();
}

void ProgramBuilder::buildSchedule() {
  for (const SmallStep &step : finish.getSteps())
    steps.push_back(&step);
  for (size_t index = 0; index < traversals.getTraversals().size();)
    index = buildTrain(index);
  buildSteps([](const Position &) { return true; });
  // What is received may be used in no later entry than a contribution, and
  // what is contributed may be of the cohort.
  Block &body = rule.getBody().front();
  for (auto reduction : body.getOps<ReductionOpInterface>())
    beginSegment(analysis.getTime(reduction->getResult(0)).segment);
  for (auto contribute : body.getOps<ContributeOp>())
    beginSegment(rounds.getSegment(contribute.getStatisticOp()));
  buildContributions(begun);
}
