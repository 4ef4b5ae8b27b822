//===- FormPhases.cpp - step-form-phases ----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/bind/BoundRule.h"
#include "passes/schedule/ScalarCode.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::step {
#define GEN_PASS_DEF_FORMPHASES
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

static bool isScalar(Value value) { return !isShaped(value.getType()); }

namespace {
/// Makes the program of one bound rule. State:
/// - `slots`: the scalars that tensors meet, in the order in which they do; the
///   position is the slot of the scalar row. Constants are no slots.
/// - `operands`: the tensors in memory, in the order of the rule's arguments.
class PhaseFormer {
public:
  PhaseFormer(RuleOp rule)
      : rule(rule), builder(rule.getContext()),
        compute(rule.getVariantAttr().getCompute()) {}

  LogicalResult run();

private:
  LogicalResult checkShapes();
  void collectSlots();
  void collectOperands();
  void buildScalarPhase(ProgramOp program);
  void buildPhase(ProgramOp program);
  Value getStoredValue(unsigned argument);

  RuleOp rule;
  OpBuilder builder;
  Type compute;
  llvm::SetVector<Value> slots;
  SmallVector<Attribute> operands;
};
} // namespace

/// One traversal covers tensors of one shape, of any rank; the runtime knows no
/// other yet. All shapes of a rule come from its arguments, so looking at those
/// is enough.
LogicalResult PhaseFormer::checkShapes() {
  Type shape = rule.getArgumentOfKind(RoleKind::Param).getType();
  if (getDims(shape).size() != 1 || getDims(shape).front().getValue() != "*")
    return rule.emitOpError()
           << "has a param of " << shape
           << "; rules for other dims than [*] cannot be compiled yet, only "
              "interpreted";
  for (BlockArgument argument : rule.getBody().getArguments())
    if (!isScalar(argument) && argument.getType() != shape)
      return rule.emitOpError()
             << "has state '"
             << rule.getRole(argument.getArgNumber()).getDisplayName()
             << "' of other dims than the param: " << argument.getType()
             << "; such states cannot be compiled yet, only interpreted";
  return success();
}

void PhaseFormer::collectSlots() {
  for (Operation &op : rule.getBody().front())
    if (op.getNumResults() == 1 && !isScalar(op.getResult(0)))
      for (Value operand : op.getOperands())
        if (isScalar(operand) && !operand.getDefiningOp<ConstantOp>())
          slots.insert(operand);
}

/// The value that the rule returns for an argument; null where it returns none
/// or the argument itself.
Value PhaseFormer::getStoredValue(unsigned argument) {
  ReturnOp ret = rule.getReturn();
  for (auto [value, index] :
       llvm::zip(ret.getValues(), rule.getReturnedArguments()))
    if (index == argument && value != rule.getBody().getArgument(argument))
      return value;
  return {};
}

void PhaseFormer::collectOperands() {
  ReturnOp ret = rule.getReturn();
  for (BlockArgument argument : rule.getBody().getArguments()) {
    RoleAttr role = rule.getRole(argument.getArgNumber());
    if (!role.isTensor())
      continue;
    // An argument that is only returned as itself is not touched at all.
    bool reads = llvm::any_of(argument.getUses(), [&](OpOperand &use) {
      return use.getOwner() != ret ||
             rule.getReturnedArguments()[use.getOperandNumber()] !=
                 argument.getArgNumber();
    });
    operands.push_back(
        OperandAttr::get(builder.getContext(), role.getKind(),
                         builder.getStringAttr(role.getDisplayName()),
                         argument.getType(), role.getStorage(), role.getInit(),
                         reads, bool(getStoredValue(argument.getArgNumber()))));
  }
}

void PhaseFormer::buildScalarPhase(ProgramOp program) {
  auto phase = ScalarPhaseOp::create(builder, rule.getLoc(),
                                     program.getSymName().str() + "_scalars");
  OpBuilder::InsertionGuard guard(builder);
  Block *block = builder.createBlock(&phase.getBody());
  IRMapping mapping;
  auto optimizer = rule->getParentOfType<OptimizerOp>();
  for (auto hyper : optimizer.getBody().getOps<HyperOp>())
    mapping.map(hyper.getResult(),
                block->addArgument(builder.getF64Type(), hyper.getLoc()));
  BlockArgument count = block->addArgument(builder.getI64Type(), rule.getLoc());
  BlockArgument fresh = block->addArgument(builder.getI1Type(), rule.getLoc());
  if (BlockArgument argument = rule.getArgumentOfKind(RoleKind::Count))
    mapping.map(argument, count);
  if (BlockArgument argument = rule.getArgumentOfKind(RoleKind::Fresh))
    mapping.map(argument, fresh);

  for (Operation &op : rule.getBody().front().without_terminator())
    if (isScalar(op.getResult(0)))
      mapping.map(op.getResult(0),
                  emitScalarCode(builder, &op, mapping, builder.getF64Type()));
  SmallVector<Value> values;
  for (Value slot : slots) {
    Value value =
        mapOrMaterialize(builder, slot, mapping, builder.getF64Type());
    if (value.getType().isInteger(1))
      value = arith::UIToFPOp::create(builder, slot.getLoc(),
                                      builder.getF64Type(), value);
    values.push_back(value);
  }
  YieldOp::create(builder, rule.getLoc(), values);
}

/// The slot as the body uses it: a condition, or rounded to the compute type.
static Value readSlot(OpBuilder &builder, Value slot, BlockArgument argument,
                      Type compute) {
  Location loc = slot.getLoc();
  if (slot.getType().isInteger(1)) {
    Value zero =
        arith::ConstantOp::create(builder, loc, builder.getF64FloatAttr(0.0));
    return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::UNE,
                                 argument, zero);
  }
  if (compute.isF64())
    return argument;
  return arith::TruncFOp::create(builder, loc, compute, argument);
}

void PhaseFormer::buildPhase(ProgramOp program) {
  auto phase = PhaseOp::create(builder, rule.getLoc(),
                               program.getSymName().str() + "_phase0",
                               slots.size(), builder.getArrayAttr(operands));
  OpBuilder::InsertionGuard guard(builder);
  Block *block = builder.createBlock(&phase.getBody());
  IRMapping mapping;
  for (Value slot : slots)
    block->addArgument(builder.getF64Type(), slot.getLoc());
  for (auto [slot, argument] : llvm::zip(slots, block->getArguments()))
    mapping.map(slot, readSlot(builder, slot, argument, compute));

  unsigned position = 0;
  SmallVector<unsigned> written;
  for (BlockArgument argument : rule.getBody().getArguments()) {
    if (!rule.getRole(argument.getArgNumber()).isTensor())
      continue;
    auto operand = cast<OperandAttr>(operands[position++]);
    if (operand.getWrites())
      written.push_back(argument.getArgNumber());
    if (!operand.getReads())
      continue;
    Value element = block->addArgument(operand.getStorage(), argument.getLoc());
    if (operand.getStorage() != compute)
      element =
          arith::ExtFOp::create(builder, argument.getLoc(), compute, element);
    mapping.map(argument, element);
  }
  for (Operation &op : rule.getBody().front().without_terminator())
    if (!isScalar(op.getResult(0)))
      mapping.map(op.getResult(0),
                  emitScalarCode(builder, &op, mapping, compute));
  SmallVector<Value> results;
  for (unsigned index : written) {
    Value value = mapping.lookup(getStoredValue(index));
    Type storage = rule.getRole(index).getStorage();
    if (storage != compute)
      value = arith::TruncFOp::create(builder, value.getLoc(), storage, value);
    results.push_back(value);
  }
  YieldOp::create(builder, rule.getReturn().getLoc(), results);
}

LogicalResult PhaseFormer::run() {
  if (failed(checkShapes()))
    return failure();
  collectSlots();
  collectOperands();
  builder.setInsertionPoint(rule);
  auto program =
      ProgramOp::create(builder, rule.getLoc(), rule.getSymName(),
                        rule.getVariantAttr(), builder.getArrayAttr(operands));
  builder.createBlock(&program.getBody());
  buildScalarPhase(program);
  buildPhase(program);
  rule.erase();
  return success();
}

namespace {
struct FormPhases : step::impl::FormPhasesBase<FormPhases> {
  void runOnOperation() override {
    SmallVector<RuleOp> rules(getOperation().getBody().getOps<RuleOp>());
    for (RuleOp rule : rules)
      if (failed(verifyBoundRule(rule)) || failed(PhaseFormer(rule).run()))
        return signalPassFailure();
  }
};
} // namespace
