//===- ProgramTraversals.cpp - the traversals of a planned rule -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ProgramBuilder.h"
#include "passes/schedule/ScalarCode.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::step;

/// An element as the body uses it: in the compute type, or a condition.
Value ProgramBuilder::readElement(Value value, Value element) {
  Location loc = value.getLoc();
  Type storage = element.getType();
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

/// The scalar code's value in the type that it has in memory.
Value ProgramBuilder::makeElement(Value value, Type storage) {
  Location loc = value.getLoc();
  if (value.getType().isInteger(1))
    return arith::UIToFPOp::create(builder, loc, storage, value);
  if (storage.isInteger())
    return arith::FPToSIOp::create(builder, loc, storage, value);
  if (storage != compute)
    return arith::TruncFOp::create(builder, loc, storage, value);
  return value;
}

static Combiner getCombiner(ReductionOpInterface reduction) {
  return reduction.getReductionKind() == ReductionKind::Amax ? Combiner::Amax
                                                             : Combiner::Sum;
}

/// The dims that a reduction leaves; none where it leaves a number.
static ArrayRef<StringAttr> getKept(ReductionOpInterface reduction) {
  return getDims(reduction->getResult(0).getType());
}

/// From the elements that are read to those that are stored, made and reduced.
void ProgramBuilder::fillBody(TraverseOp traverse, const Body &body) {
  OpBuilder::InsertionGuard guard(builder);
  Block *block = builder.createBlock(&traverse.getBody());
  IRMapping mapping;
  for (auto &[value, buffer] : body.reads)
    block->addArgument(cast<BufferType>(buffer.getType()).getElement(),
                       value.getLoc());
  for (auto [read, element] : llvm::zip(body.reads, block->getArguments()))
    mapping.map(read.first, readElement(read.first, element));
  SmallVector<Value> stored;
  for (unsigned argument : body.stores)
    stored.push_back(analysis.getStoredValue(argument));
  useScalars(body.ops, stored, traverse, mapping);
  for (Operation *op : body.ops)
    mapping.map(op->getResult(0),
                emitScalarCode(builder, op, mapping, compute));
  SmallVector<Value> results;
  for (auto [value, write] : llvm::zip(stored, traverse.getWrites()))
    results.push_back(
        makeElement(mapOrMaterialize(builder, value, mapping, compute),
                    cast<BufferType>(write.getType()).getElement()));
  for (Value value : body.made)
    results.push_back(makeElement(mapping.lookup(value), compute));
  for (ReductionOpInterface reduction : body.reductions)
    for (Value input : reduction.getInputs())
      results.push_back(mapping.lookup(input));
  YieldOp::create(builder, rule.getReturn().getLoc(), results);
}

/// Adds `step.traverse`, and maps what it stores and makes. Returns what it
/// reduced.
SmallVector<ProgramBuilder::Reduced>
ProgramBuilder::buildTraverse(StringRef name, Type over, const Body &body) {
  SmallVector<Value> reads, writes;
  SmallVector<Type> types;
  for (auto &[value, buffer] : body.reads)
    reads.push_back(buffer);
  for (unsigned argument : body.stores) {
    writes.push_back(values.lookup(rule.getBody().getArgument(argument)));
    types.push_back(writes.back().getType());
  }
  for (Value value : body.made)
    types.push_back(BufferType::get(builder.getContext(),
                                    getDims(value.getType()), compute));
  for (ReductionOpInterface reduction : body.reductions)
    types.append(reduction.getInputs().size(),
                 PartialType::get(builder.getContext(), getCombiner(reduction),
                                  getDims(over), getKept(reduction)));
  auto traverse = TraverseOp::create(
      builder, rule.getLoc(), types, name, over, reads,
      /*scalars=*/ValueRange(), writes, body.unless, body.isTrailing);
  fillBody(traverse, body);
  ResultRange results = traverse.getResults();
  unsigned next = 0;
  for (unsigned argument : body.stores)
    values.map(rule.getBody().getArgument(argument), results[next++]);
  for (Value value : body.made) {
    Value buffer = results[next++];
    if (analysis.getKeptWhole().contains(value))
      kept[value] = buffer;
    else
      values.map(value, buffer);
  }
  SmallVector<Reduced> reduced;
  for (ReductionOpInterface reduction : body.reductions) {
    reduced.push_back({reduction, {}});
    for (size_t k = 0; k < reduction.getInputs().size(); ++k)
      reduced.back().partials.push_back(results[next++]);
  }
  return reduced;
}

/// Reads the argument's buffer `as` the value: the argument, or its new value.
void ProgramBuilder::readArgument(unsigned argument, Value as, Body &body) {
  body.reads.push_back(
      {as, values.lookup(rule.getBody().getArgument(argument))});
}

void ProgramBuilder::addOps(const Traversal &traversal, Body &body) {
  for (Operation &op : rule.getBody().front().without_terminator())
    if (op.getNumResults() == 1 && traversal.computed.contains(op.getResult(0)))
      body.ops.push_back(&op);
}

/// What is of rows is combined at once; the rest waits for the end of the
/// train.
void ProgramBuilder::buildTraversal(size_t index,
                                    SmallVectorImpl<Reduced> &waiting) {
  const Traversal &traversal = traversals.getTraversals()[index];
  Body body;
  if (traversal.unless)
    body.unless = getOwn(traversal.unless);
  body.isTrailing = traversal.isTrailing;
  body.stores.assign(traversal.stores.begin(), traversal.stores.end());
  llvm::sort(body.stores);
  for (BlockArgument argument : rule.getBody().getArguments()) {
    unsigned number = argument.getArgNumber();
    for (auto [value, source] : traversal.leaves)
      if (source == number)
        readArgument(number, value, body);
    if (traversal.inputs.contains(argument) && rule.getRole(number).isTensor())
      readArgument(number, argument, body);
  }
  for (Value input : traversal.inputs)
    if (finish.getTemps().contains(input))
      body.reads.push_back({input, getBuffer(input)});
  addOps(traversal, body);
  body.made.assign(traversal.keeps.begin(), traversal.keeps.end());
  body.reductions = traversal.reductions;
  Type over = rule.getArgumentOfKind(RoleKind::Param).getType();
  for (Reduced &reduced :
       buildTraverse(makeName("_phase" + Twine(index)), over, body))
    if (traversals.isOfRowBlock(reduced.reduction))
      buildCombine(reduced);
    else
      waiting.push_back(std::move(reduced));
}

/// The one traversal of a program of elements.
void ProgramBuilder::buildElements() {
  Body body;
  for (const Traversal &traversal : traversals.getTraversals()) {
    addOps(traversal, body);
    for (unsigned argument : traversal.stores)
      body.stores.push_back(argument);
    for (auto [value, argument] : traversal.leaves)
      readArgument(argument, value, body);
  }
  llvm::sort(body.stores);
  llvm::sort(body.reads, [&](const auto &a, const auto &b) {
    return cast<BlockArgument>(getMemory(a.second)).getArgNumber() <
           cast<BlockArgument>(getMemory(b.second)).getArgNumber();
  });
  buildTraverse(makeName("_phase0"),
                rule.getArgumentOfKind(RoleKind::Param).getType(), body);
}

/// Vectors of one space: what is computed of them, reduced and written.
void ProgramBuilder::buildVectors(const SmallStep &step) {
  Body body;
  Type over;
  llvm::SetVector<Value> used;
  auto use = [&](Value value) {
    if (isSmall(analysis.getDomain(value)) &&
        !finish.isOfStep(value.getDefiningOp(), step))
      used.insert(value);
  };
  for (Operation *op : step.ops) {
    auto reduction = dyn_cast<ReductionOpInterface>(op);
    if (reduction)
      body.reductions.push_back(reduction);
    else
      body.ops.push_back(op);
    if (analysis.getPlace(op) == step.domain)
      over = (reduction ? reduction.getInput() : op->getResult(0)).getType();
    llvm::for_each(op->getOperands(), use);
  }
  for (unsigned argument : step.stores) {
    over = rule.getBody().getArgument(argument).getType();
    use(analysis.getStoredValue(argument));
    body.stores.push_back(argument);
  }
  llvm::sort(body.stores);
  for (BlockArgument argument : rule.getBody().getArguments())
    if (used.contains(argument))
      readArgument(argument.getArgNumber(), argument, body);
  for (Value value : used)
    if (!isa<BlockArgument>(value))
      body.reads.push_back({value, getBuffer(value)});
  for (Operation *op : body.ops)
    if (finish.getTemps().contains(op->getResult(0)))
      body.made.push_back(op->getResult(0));
  auto shape = SymTensorType::get(builder.getContext(), getDims(over));
  for (const Reduced &reduced :
       buildTraverse(makeName("_small" + Twine(numVectorSteps++)), shape, body))
    buildCombine(reduced);
}

/// An f64, or a buffer of the compute type.
Type ProgramBuilder::getResultType(ReductionOpInterface reduction) {
  ArrayRef<StringAttr> kept = getKept(reduction);
  if (kept.empty())
    return builder.getF64Type();
  return BufferType::get(builder.getContext(), kept, compute);
}

/// To the result, or to a share for each tensor, which is received with the
/// others' or from the round.
void ProgramBuilder::buildCombine(const Reduced &reduced) {
  ReductionOpInterface reduction = reduced.reduction;
  bool isMean = reduction.getReductionKind() == ReductionKind::Mean;
  Location loc = reduction.getLoc();
  Value unless =
      reduced.partials.front().getDefiningOp<TraverseOp>().getUnless();
  if (!reduction.getAcrossAttr() && reduced.partials.size() == 1) {
    values.map(reduction->getResult(0),
               CombineOp::create(builder, loc, getResultType(reduction),
                                 reduced.partials.front(), isMean, unless)
                   .getResult());
    return;
  }
  SmallVector<Value> &own = shares[reduction];
  for (Value partial : reduced.partials) {
    auto type = cast<PartialType>(partial.getType());
    auto share = ShareType::get(builder.getContext(), type.getCombiner(),
                                type.getDims(), type.getKept());
    own.push_back(CombineOp::create(builder, loc, share, partial,
                                    /*mean=*/false, unless));
  }
  if (!reduction.getAcrossAttr())
    buildReceive(reduction, own);
}

void ProgramBuilder::buildReceive(ReductionOpInterface reduction,
                                  ValueRange shares) {
  bool isMean = reduction.getReductionKind() == ReductionKind::Mean;
  values.map(reduction->getResult(0),
             ReceiveOp::create(builder, reduction.getLoc(),
                               getResultType(reduction), shares, isMean)
                 .getResult());
}
