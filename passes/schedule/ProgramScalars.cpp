//===- ProgramScalars.cpp - the scalars of a planned rule -----------------===//
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
  for (Value slot : llvm::concat<const Value>(ArrayRef<Value>(slots),
                                              finish.getSlots().getArrayRef()))
    block->addArgument(builder.getF64Type(), slot.getLoc());
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
  for (auto [input, argument] :
       llvm::zip(getScalarInputs(optimizer), block->getArguments()))
    mapping.map(input, readSlot(builder, input.getType(), argument,
                                builder.getF64Type()));
  if (BlockArgument argument = rule.getArgumentOfKind(RoleKind::Count))
    mapping.map(argument, count);
  SmallVector<BlockArgument> freshes = rule.getFreshes();
  for (size_t k = 0; k < program.getFreshLists().size(); ++k) {
    BlockArgument fresh =
        block->addArgument(builder.getI1Type(), rule.getLoc());
    if (k < freshes.size())
      mapping.map(freshes[k], fresh);
  }
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
    writes.push_back(getSlotNumber(value));
  for (CarryOp carry : step.carries) {
    kept.push_back(carry.getValue());
    writes.push_back(getSlotNumber(carry.getCarried()));
  }
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
