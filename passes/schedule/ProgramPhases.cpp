//===- ProgramPhases.cpp - the phases of a planned rule -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ProgramBuilder.h"
#include "passes/schedule/ScalarCode.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinAttributes.h"

using namespace mlir;
using namespace mlir::step;

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

/// An element as the body uses it: in the compute type, or a condition.
Value ProgramBuilder::addArgument(Block *block, Value value, Type storage) {
  Location loc = value.getLoc();
  Value element = block->addArgument(storage, loc);
  // A position stays an integer.
  if (storage.isInteger(64))
    return element;
  if (storage.isInteger())
    element = arith::SIToFPOp::create(builder, loc, compute, element);
  else if (storage != compute)
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
  if (storage.isInteger())
    return arith::FPToSIOp::create(builder, loc, storage, value);
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
    for (const std::string &partial : getPartialNames(reduction))
      accumulators.push_back(
          AccumulatorAttr::get(context, getCombiner(reduction),
                               columns ? Direction::Column : Direction::Row,
                               builder.getStringAttr(partial)));
  }
  auto phase = PhaseOp::create(builder, rule.getLoc(), name, slots.size(),
                               builder.getArrayAttr(body.operands), space,
                               segment, int64_t(finish.getSlots().size()),
                               builder.getArrayAttr(accumulators), body.unless,
                               body.isTrailing);
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
    for (Value input : reduction.getInputs())
      results.push_back(mapping.lookup(input));
  YieldOp::create(builder, rule.getReturn().getLoc(), results);
}

void ProgramBuilder::buildTraversal(size_t index) {
  const Traversal &traversal = traversals.getTraversals()[index];
  Body body;
  if (traversal.unless)
    body.unless = getSlot(traversal.unless);
  body.isTrailing = traversal.isTrailing;
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
    if (traversals.isOfRowBlock(reduction))
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
    if (isSmall(analysis.getDomain(value)) &&
        !finish.isOfStep(value.getDefiningOp(), step))
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
  std::vector<std::string> partials = getPartialNames(reduction);
  std::vector<std::string> wholes = getWholeNames(reduction);
  StringAttr temp;
  IntegerAttr slot;
  if (wholes.empty() && analysis.getDomain(result) == Domain::Tensor)
    slot = getSlot(result);
  else if (wholes.empty())
    temp = getTemp(result).getName();
  bool isMean = reduction.getReductionKind() == ReductionKind::Mean;
  for (auto [index, partial] : llvm::enumerate(partials))
    CombineOp::create(
        builder, reduction.getLoc(), builder.getStringAttr(partial),
        getCombiner(reduction), space, getLevel(analysis.getDomain(result)),
        isMean && wholes.empty(), temp, slot,
        wholes.empty() ? StringAttr() : builder.getStringAttr(wholes[index]),
        reduction.getUnless() ? getSlot(reduction.getUnless()) : IntegerAttr(),
        segment);
  if (!wholes.empty() && !reduction.getAcrossAttr())
    buildReceive(reduction, segment);
}

/// Makes one of what was combined of each tensor that is reduced.
void ProgramBuilder::buildReceive(ReductionOpInterface reduction,
                                  int64_t segment) {
  Value result = reduction->getResult(0);
  SmallVector<Attribute> names;
  for (const std::string &name : getWholeNames(reduction))
    names.push_back(builder.getStringAttr(name));
  bool toSlot = analysis.getDomain(result) == Domain::Tensor;
  ReceiveOp::create(builder, reduction.getLoc(), builder.getArrayAttr(names),
                    getCombiner(reduction),
                    getSpace(analysis.getDomain(reduction.getInput())),
                    getLevel(analysis.getDomain(result)),
                    reduction.getReductionKind() == ReductionKind::Mean,
                    toSlot ? StringAttr() : getTemp(result).getName(),
                    toSlot ? getSlot(result) : IntegerAttr(), segment);
}

IntegerAttr ProgramBuilder::getSlot(Value value) {
  return builder.getI64IntegerAttr(getSlotNumber(value));
}

/// Takes what the round before the segment reduced over ranks.
void ProgramBuilder::buildReceives(int64_t segment) {
  for (auto reduction : rule.getBody().front().getOps<ReductionOpInterface>()) {
    Value result = reduction->getResult(0);
    if (reduction.getAcrossAttr() &&
        analysis.getTime(result).segment == segment)
      buildReceive(reduction, segment);
  }
}
