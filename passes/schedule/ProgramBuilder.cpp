//===- ProgramBuilder.cpp - the program of a planned rule -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ProgramBuilder.h"

#include "passes/schedule/ScalarCode.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinAttributes.h"

using namespace mlir;
using namespace mlir::step;

/// What one phase reads, computes, writes and accumulates.
struct ProgramBuilder::Body {
  /// Operands in the order in which their elements are read and written, and
  /// the value that each element is when read, or becomes when written.
  SmallVector<Attribute> operands;
  SmallVector<Value> reads, writes;
  SmallVector<Operation *> ops;
  SmallVector<ReductionOpInterface> reductions;
};

static Space getSpace(Domain domain) {
  switch (domain) {
  case Domain::Rows:
    return Space::Rows;
  case Domain::Columns:
    return Space::Columns;
  case Domain::Items:
    return Space::Items;
  default:
    return Space::Tiles;
  }
}

ProgramBuilder::ProgramBuilder(RuleOp rule, Rounds &rounds,
                               RuleAnalysis &analysis,
                               TraversalPlan &traversals, FinishPlan &finish)
    : rule(rule), rounds(rounds), analysis(analysis), traversals(traversals),
      finish(finish), builder(rule.getContext()),
      compute(rule.getVariantAttr().getCompute()) {}

//===----------------------------------------------------------------------===//
// What the program has
//===----------------------------------------------------------------------===//

void ProgramBuilder::collectSlots() {
  llvm::SetVector<Value> met;
  auto meet = [&](Value value) {
    if (analysis.getDomain(value) == Domain::Cohort)
      met.insert(value);
  };
  for (Operation &op : rule.getBody().front().without_terminator())
    if (op.getNumResults() == 1 &&
        analysis.getDomain(op.getResult(0)) != Domain::Cohort)
      llvm::for_each(op.getOperands(), meet);
  for (const SmallStep &step : finish.getSteps())
    llvm::for_each(step.copies, meet);
  slots = met.takeVector();
  llvm::stable_sort(slots, [&](Value a, Value b) {
    return rounds.getSegment(a) < rounds.getSegment(b);
  });
}

OperandAttr ProgramBuilder::getOperand(unsigned argument, bool reads,
                                       bool writes) const {
  RuleOp op = rule;
  RoleAttr role = op.getRole(argument);
  return OperandAttr::get(
      role.getContext(), role.getKind(),
      StringAttr::get(role.getContext(), role.getDisplayName()),
      op.getBody().getArgument(argument).getType(), role.getStorage(),
      role.getInit(), reads, writes);
}

void ProgramBuilder::collectOperands() {
  llvm::SetVector<unsigned> reads;
  for (const Traversal &traversal : traversals.getTraversals()) {
    reads.insert_range(traversal.reads);
    for (Value input : traversal.inputs)
      if (auto argument = dyn_cast<BlockArgument>(input))
        reads.insert(argument.getArgNumber());
  }
  for (const SmallStep &step : finish.getSteps()) {
    auto read = [&](Value value) {
      if (auto argument = dyn_cast<BlockArgument>(value))
        reads.insert(argument.getArgNumber());
    };
    for (Operation *op : step.ops)
      llvm::for_each(op->getOperands(), read);
    for (unsigned argument : step.stores)
      read(analysis.getStoredValue(argument));
  }
  for (BlockArgument argument : rule.getBody().getArguments()) {
    unsigned index = argument.getArgNumber();
    // An argument that is only returned as itself is not touched at all.
    if (rule.getRole(index).isTensor())
      operands.push_back(getOperand(index, reads.contains(index),
                                    bool(analysis.getStoredValue(index))));
  }
}

static SmallVector<StringRef> getVectorSize(Domain domain) {
  switch (domain) {
  case Domain::Rows:
    return {"B", "N"};
  case Domain::Columns:
    return {"B", "M"};
  default:
    return {"B"};
  }
}

/// The buffer that a traversal of the input's space leaves partial sums in.
static SmallVector<StringRef> getPartialSize(Domain input, bool columns) {
  switch (input) {
  case Domain::Rows:
    return {"B", "N1"};
  case Domain::Columns:
    return {"B", "ML"};
  case Domain::Items:
    return {"B1"};
  default:
    if (columns)
      return {"B", "NL", "M"};
    return {"B", "N", "ML"};
  }
}

void ProgramBuilder::collectBuffers() {
  MLIRContext *context = builder.getContext();
  auto add = [&](const Twine &name, ArrayRef<StringRef> size, Type element,
                 bool live) {
    SmallVector<StringAttr> factors;
    for (StringRef factor : size)
      factors.push_back(builder.getStringAttr(factor));
    buffers.push_back(BufferAttr::get(context, builder.getStringAttr(name),
                                      factors, element, live));
  };
  for (auto [value, live] : finish.getTemps()) {
    unsigned number = tempNumbers.size();
    tempNumbers[value] = number;
    add("temp" + Twine(number), getVectorSize(analysis.getDomain(value)),
        compute, live);
  }
  for (auto reduction : rule.getBody().front().getOps<ReductionOpInterface>()) {
    unsigned number = partialNumbers.size();
    partialNumbers[reduction] = number;
    Domain input = analysis.getDomain(reduction.getInput());
    bool columns =
        analysis.getDomain(reduction->getResult(0)) == Domain::Columns;
    add("partial" + Twine(number), getPartialSize(input, columns),
        builder.getF64Type(), /*live=*/false);
  }
}

std::string ProgramBuilder::getPartialName(ReductionOpInterface reduction) {
  return ("partial" + Twine(partialNumbers.lookup(reduction))).str();
}

OperandAttr ProgramBuilder::getTemp(Value value) const {
  MLIRContext *context = compute.getContext();
  Type type = value.getType();
  if (auto mask = dyn_cast<SymMaskType>(type))
    type = SymTensorType::get(context, mask.getDims());
  auto name =
      StringAttr::get(context, "temp" + Twine(tempNumbers.lookup(value)));
  return OperandAttr::get(context, RoleKind::Temp, name, type, compute,
                          FloatAttr(), /*reads=*/true, /*writes=*/false);
}

/// Statistic, slot and segment of each contribution.
SmallVector<int64_t> ProgramBuilder::getContributions() {
  SmallVector<int64_t> triples;
  auto optimizer = rule->getParentOfType<OptimizerOp>();
  SmallVector<StatisticOp> statistics(
      optimizer.getBody().getOps<StatisticOp>());
  for (auto contribute : rule.getBody().front().getOps<ContributeOp>()) {
    StatisticOp statistic = contribute.getStatisticOp();
    triples.push_back(llvm::find(statistics, statistic) - statistics.begin());
    triples.push_back(llvm::find(finish.getSlots(), contribute.getValue()) -
                      finish.getSlots().begin());
    triples.push_back(analysis.getTime(contribute.getValue()).segment);
  }
  return triples;
}

/// One traversal does all, and nothing but elements and scalars of the cohort
/// is needed.
bool ProgramBuilder::isElementwise() {
  for (BlockArgument argument : rule.getBody().getArguments())
    if (isShaped(argument.getType()) &&
        analysis.getDomain(argument) != Domain::Full)
      return false;
  return finish.getSteps().empty() && finish.getSlots().empty() &&
         traversals.getTraversals().size() <= 1 && rounds.getNumSegments() == 1;
}

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

/// The scalar as an f64 slot keeps it.
static Value toSlot(OpBuilder &builder, Value value) {
  Location loc = value.getLoc();
  if (value.getType().isInteger(1))
    return arith::UIToFPOp::create(builder, loc, builder.getF64Type(), value);
  if (value.getType().isInteger(64))
    return arith::SIToFPOp::create(builder, loc, builder.getF64Type(), value);
  return value;
}

/// The slot as the body uses it: a condition, a count, or rounded to the
/// element type.
static Value readSlot(OpBuilder &builder, Type type, Value slot, Type element) {
  Location loc = slot.getLoc();
  if (type.isInteger(64))
    return arith::FPToSIOp::create(builder, loc, type, slot);
  if (type.isInteger(1)) {
    Value zero =
        arith::ConstantOp::create(builder, loc, builder.getF64FloatAttr(0.0));
    return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::UNE, slot,
                                 zero);
  }
  if (element.isF64())
    return slot;
  return arith::TruncFOp::create(builder, loc, element, slot);
}

void ProgramBuilder::addSlotArguments(Block *block, IRMapping &mapping,
                                      Type element) {
  Type f64 = builder.getF64Type();
  for (Value slot : slots)
    block->addArgument(f64, slot.getLoc());
  for (Value slot : finish.getSlots())
    block->addArgument(f64, slot.getLoc());
  builder.setInsertionPointToEnd(block);
  unsigned position = 0;
  for (Value slot : slots)
    mapping.map(slot, readSlot(builder, slot.getType(),
                               block->getArgument(position++), element));
  for (Value slot : finish.getSlots()) {
    Value argument = block->getArgument(position++);
    if (analysis.getDomain(slot) == Domain::Tensor)
      mapping.map(slot, readSlot(builder, slot.getType(), argument, element));
  }
}

void ProgramBuilder::buildScalarPhase(int64_t segment) {
  SmallVector<Value> own;
  int64_t firstSlot = 0;
  for (Value slot : slots) {
    if (rounds.getSegment(slot) == segment)
      own.push_back(slot);
    firstSlot += rounds.getSegment(slot) < segment;
  }
  if (segment > 0 && own.empty())
    return;
  std::string suffix =
      segment ? "_scalars" + std::to_string(segment) : std::string("_scalars");
  auto phase = ScalarPhaseOp::create(builder, rule.getLoc(), makeName(suffix),
                                     segment, firstSlot);
  OpBuilder::InsertionGuard guard(builder);
  Block *block = builder.createBlock(&phase.getBody());
  IRMapping mapping;
  auto optimizer = rule->getParentOfType<OptimizerOp>();
  for (Value input : getScalarInputs(optimizer))
    block->addArgument(builder.getF64Type(), input.getLoc());
  BlockArgument count = block->addArgument(builder.getI64Type(), rule.getLoc());
  BlockArgument fresh = block->addArgument(builder.getI1Type(), rule.getLoc());
  for (auto [input, argument] :
       llvm::zip(getScalarInputs(optimizer), block->getArguments()))
    mapping.map(input, readSlot(builder, input.getType(), argument,
                                builder.getF64Type()));
  if (BlockArgument argument = rule.getArgumentOfKind(RoleKind::Count))
    mapping.map(argument, count);
  if (BlockArgument argument = rule.getArgumentOfKind(RoleKind::Fresh))
    mapping.map(argument, fresh);
  for (Operation &op : rule.getBody().front().without_terminator())
    if (op.getNumResults() == 1 &&
        analysis.getDomain(op.getResult(0)) == Domain::Cohort &&
        rounds.getSegment(op.getResult(0)) <= segment)
      mapping.map(op.getResult(0),
                  emitScalarCode(builder, &op, mapping, builder.getF64Type()));
  SmallVector<Value> values;
  for (Value slot : own)
    values.push_back(toSlot(builder, mapOrMaterialize(builder, slot, mapping,
                                                      builder.getF64Type())));
  YieldOp::create(builder, rule.getLoc(), values);
}

void ProgramBuilder::buildTensorScalars(const SmallStep &step) {
  IRMapping mapping;
  Type f64 = builder.getF64Type();
  SmallVector<Value> kept(step.copies);
  for (Operation *op : step.ops)
    if (finish.getSlots().contains(op->getResult(0)))
      kept.push_back(op->getResult(0));
  SmallVector<int64_t> writes;
  for (Value value : kept)
    writes.push_back(llvm::find(finish.getSlots(), value) -
                     finish.getSlots().begin());
  auto scalars = TensorScalarsOp::create(
      builder, rule.getLoc(), makeName("_small" + Twine(numSmallPhases++)),
      slots.size(), finish.getSlots().size(), writes,
      step.position.time.segment);
  OpBuilder::InsertionGuard guard(builder);
  Block *block = builder.createBlock(&scalars.getBody());
  addSlotArguments(block, mapping, f64);
  for (Operation *op : step.ops)
    mapping.map(op->getResult(0), emitScalarCode(builder, op, mapping, f64));
  SmallVector<Value> values;
  for (Value value : kept)
    values.push_back(
        toSlot(builder, mapOrMaterialize(builder, value, mapping, f64)));
  YieldOp::create(builder, rule.getLoc(), values);
}

//===----------------------------------------------------------------------===//
// Phases
//===----------------------------------------------------------------------===//

/// An element as the body uses it: in the compute type, or a condition.
Value ProgramBuilder::addArgument(Block *block, Value value, Type storage) {
  Location loc = value.getLoc();
  Value element = block->addArgument(storage, loc);
  if (storage != compute)
    element = arith::ExtFOp::create(builder, loc, compute, element);
  if (!isa<SymMaskType>(value.getType()))
    return element;
  Value zero = arith::ConstantOp::create(builder, loc,
                                         builder.getFloatAttr(compute, 0.0));
  return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::UNE, element,
                               zero);
}

/// The value in the type that it has in memory.
Value ProgramBuilder::emitStored(Value value, Type storage) {
  Location loc = value.getLoc();
  if (value.getType().isInteger(1))
    return arith::UIToFPOp::create(builder, loc, storage, value);
  if (storage != compute)
    return arith::TruncFOp::create(builder, loc, storage, value);
  return value;
}

void ProgramBuilder::buildPhase(StringRef name, Space space, int64_t segment,
                                Body &body) {
  MLIRContext *context = builder.getContext();
  SmallVector<Attribute> accumulators;
  for (ReductionOpInterface reduction : body.reductions) {
    bool columns =
        space == Space::Tiles &&
        analysis.getDomain(reduction->getResult(0)) == Domain::Columns;
    accumulators.push_back(AccumulatorAttr::get(
        context,
        reduction.getReductionKind() == ReductionKind::Amax ? Combiner::Amax
                                                            : Combiner::Sum,
        columns ? Direction::Column : Direction::Row,
        builder.getStringAttr(getPartialName(reduction))));
  }
  auto phase = PhaseOp::create(builder, rule.getLoc(), name, slots.size(),
                               builder.getArrayAttr(body.operands), space,
                               segment, int64_t(finish.getSlots().size()),
                               builder.getArrayAttr(accumulators));
  OpBuilder::InsertionGuard guard(builder);
  Block *block = builder.createBlock(&phase.getBody());
  IRMapping mapping;
  addSlotArguments(block, mapping, compute);
  for (auto [attr, value] : llvm::zip(body.operands, body.reads))
    if (value)
      mapping.map(value, addArgument(block, value,
                                     cast<OperandAttr>(attr).getStorage()));
  for (Operation *op : body.ops)
    mapping.map(op->getResult(0),
                emitScalarCode(builder, op, mapping, compute));
  SmallVector<Value> results;
  for (auto [attr, value] : llvm::zip(body.operands, body.writes))
    if (value)
      results.push_back(
          emitStored(mapOrMaterialize(builder, value, mapping, compute),
                     cast<OperandAttr>(attr).getStorage()));
  for (ReductionOpInterface reduction : body.reductions)
    results.push_back(mapping.lookup(reduction.getInput()));
  YieldOp::create(builder, rule.getReturn().getLoc(), results);
}

void ProgramBuilder::buildTraversal(size_t index) {
  const Traversal &traversal = traversals.getTraversals()[index];
  Body body;
  for (BlockArgument argument : rule.getBody().getArguments()) {
    unsigned number = argument.getArgNumber();
    bool writes = llvm::is_contained(traversal.stores, number);
    Value read;
    for (auto [value, source] : traversal.leaves)
      if (source == number)
        read = value;
    if (traversal.inputs.contains(argument) && rule.getRole(number).isTensor())
      read = argument;
    if (!read && !writes)
      continue;
    body.operands.push_back(getOperand(number, bool(read), writes));
    body.reads.push_back(read);
    body.writes.push_back(writes ? analysis.getStoredValue(number) : Value());
  }
  for (Value input : traversal.inputs) {
    if (!tempNumbers.count(input))
      continue;
    body.operands.push_back(getTemp(input));
    body.reads.push_back(input);
    body.writes.push_back({});
  }
  for (Operation &op : rule.getBody().front().without_terminator())
    if (op.getNumResults() == 1 && traversal.computed.contains(op.getResult(0)))
      body.ops.push_back(&op);
  body.reductions = traversal.reductions;
  buildPhase(makeName("_phase" + Twine(index)), Space::Tiles,
             traversal.time.segment, body);
  for (ReductionOpInterface reduction : traversal.reductions)
    buildCombine(reduction, Space::Tiles, traversal.time.segment);
}

/// The one phase of a program of elements. It lists all operands: their
/// positions are those in a row of the table.
void ProgramBuilder::buildElements() {
  Body body;
  for (BlockArgument argument : rule.getBody().getArguments()) {
    unsigned number = argument.getArgNumber();
    if (!rule.getRole(number).isTensor())
      continue;
    auto operand = cast<OperandAttr>(operands[body.operands.size()]);
    body.operands.push_back(operand);
    body.reads.push_back(operand.getReads() ? argument : Value());
    body.writes.push_back(operand.getWrites() ? analysis.getStoredValue(number)
                                              : Value());
  }
  for (const Traversal &traversal : traversals.getTraversals())
    for (Operation &op : rule.getBody().front().without_terminator())
      if (op.getNumResults() == 1 &&
          traversal.computed.contains(op.getResult(0)))
        body.ops.push_back(&op);
  buildPhase(makeName("_phase0"), Space::Elements, 0, body);
}

void ProgramBuilder::buildStep(const SmallStep &step) {
  if (step.domain == Domain::Tensor)
    return buildTensorScalars(step);
  Body body;
  llvm::SetVector<Value> used;
  auto use = [&](Value value) {
    Operation *op = value.getDefiningOp();
    bool local = op && llvm::is_contained(step.ops, op) &&
                 !isa<ReductionOpInterface>(op);
    if (isSmall(analysis.getDomain(value)) && !local)
      used.insert(value);
  };
  for (Operation *op : step.ops) {
    if (auto reduction = dyn_cast<ReductionOpInterface>(op))
      body.reductions.push_back(reduction);
    else
      body.ops.push_back(op);
    llvm::for_each(op->getOperands(), use);
  }
  for (unsigned argument : step.stores)
    use(analysis.getStoredValue(argument));

  for (BlockArgument argument : rule.getBody().getArguments()) {
    unsigned number = argument.getArgNumber();
    bool reads = used.contains(argument);
    bool writes = llvm::is_contained(step.stores, number);
    if (!reads && !writes)
      continue;
    body.operands.push_back(getOperand(number, reads, writes));
    body.reads.push_back(reads ? argument : Value());
    body.writes.push_back(writes ? analysis.getStoredValue(number) : Value());
  }
  auto addTemp = [&](Value value, bool writes) {
    OperandAttr temp = getTemp(value);
    body.operands.push_back(OperandAttr::get(
        temp.getContext(), temp.getKind(), temp.getName(), temp.getShape(),
        temp.getStorage(), FloatAttr(), !writes, writes));
    body.reads.push_back(writes ? Value() : value);
    body.writes.push_back(writes ? value : Value());
  };
  for (Value value : used)
    if (!isa<BlockArgument>(value))
      addTemp(value, /*writes=*/false);
  for (Operation *op : body.ops)
    if (tempNumbers.count(op->getResult(0)))
      addTemp(op->getResult(0), /*writes=*/true);
  buildPhase(makeName("_small" + Twine(numSmallPhases++)),
             getSpace(step.domain), step.position.time.segment, body);
  for (ReductionOpInterface reduction : body.reductions)
    buildCombine(reduction, getSpace(step.domain), step.position.time.segment);
}

static Level getLevel(Domain result) {
  switch (result) {
  case Domain::Rows:
    return Level::Rows;
  case Domain::Columns:
    return Level::Columns;
  case Domain::Items:
    return Level::Items;
  default:
    return Level::Tensor;
  }
}

void ProgramBuilder::buildCombine(ReductionOpInterface reduction, Space space,
                                  int64_t segment) {
  Value result = reduction->getResult(0);
  StringAttr temp;
  IntegerAttr slot;
  if (analysis.getDomain(result) == Domain::Tensor)
    slot = builder.getI64IntegerAttr(llvm::find(finish.getSlots(), result) -
                                     finish.getSlots().begin());
  else
    temp = getTemp(result).getName();
  ReductionKind kind = reduction.getReductionKind();
  CombineOp::create(builder, reduction.getLoc(),
                    builder.getStringAttr(getPartialName(reduction)),
                    kind == ReductionKind::Amax ? Combiner::Amax
                                                : Combiner::Sum,
                    space, getLevel(analysis.getDomain(result)),
                    kind == ReductionKind::Mean, temp, slot, segment);
}

//===----------------------------------------------------------------------===//
// The whole
//===----------------------------------------------------------------------===//

void ProgramBuilder::beginSegment(int64_t segment) {
  while (begun < segment)
    buildScalarPhase(++begun);
}

void ProgramBuilder::build() {
  collectSlots();
  collectOperands();
  bool elementwise = isElementwise();
  if (!elementwise)
    collectBuffers();
  builder.setInsertionPoint(rule);
  program = ProgramOp::create(
      builder, rule.getLoc(), rule.getSymName(), rule.getVariantAttr(),
      builder.getArrayAttr(operands), builder.getArrayAttr(buffers),
      int64_t(finish.getSlots().size()), getContributions());
  builder.createBlock(&program.getBody());
  beginSegment(0);
  if (elementwise)
    return buildElements();

  ArrayRef<SmallStep> steps = finish.getSteps();
  for (auto [index, traversal] : llvm::enumerate(traversals.getTraversals())) {
    for (; !steps.empty() && steps.front().position.time <= traversal.time;
         steps = steps.drop_front()) {
      beginSegment(steps.front().position.time.segment);
      buildStep(steps.front());
    }
    beginSegment(traversal.time.segment);
    buildTraversal(index);
  }
  for (const SmallStep &step : steps) {
    beginSegment(step.position.time.segment);
    buildStep(step);
  }
}
