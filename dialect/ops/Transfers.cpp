//===- Transfers.cpp - tensors that go to where they are needed -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/ops/Parts.h"

using namespace mlir;
using namespace mlir::step;

/// What stands in a rule, or in a program, of this kind.
static RoleAttr getRoleOf(BlockArgument argument) {
  Operation *parent = argument.getOwner()->getParentOp();
  if (auto rule = dyn_cast<RuleOp>(parent))
    return rule.getRole(argument.getArgNumber());
  return cast<ProgramOp>(parent).getRole(argument.getArgNumber());
}

/// The tensor as its caller has it.
static Value getSource(Value value) {
  while (Operation *before = value.getDefiningOp<TransferOpInterface>())
    value = before->getOperand(0);
  return value;
}

static LogicalResult verifyGradient(TransferOpInterface op) {
  auto argument = dyn_cast<BlockArgument>(getSource(op->getOperand(0)));
  if (!argument || getRoleOf(argument).getKind() != RoleKind::Grad)
    return op.emitOpError("is not of the gradient");
  return success();
}

static LogicalResult verifyParam(TransferOpInterface op) {
  if (isa<ProgramOp>(op->getParentOp())) {
    auto memory = dyn_cast<BlockArgument>(getMemory(op->getOperand(0)));
    if (!memory || getRoleOf(memory).getKind() != RoleKind::Param)
      return op.emitOpError("is not of the param");
    return success();
  }
  auto rule = cast<RuleOp>(op->getParentOp());
  for (OpOperand &use : op->getResult(0).getUses()) {
    if (auto returned = dyn_cast<ReturnOp>(use.getOwner());
        returned &&
        rule.getRole(rule.getReturnedArguments()[use.getOperandNumber()])
                .getKind() == RoleKind::Param)
      continue;
    return op.emitOpError("is used for something else than the param");
  }
  return success();
}

/// Of all of them. `needsWire` where addends cross, and nowhere else.
static LogicalResult verifyTransfer(TransferOpInterface op,
                                    std::optional<bool> needsWire) {
  if (op.getOver().empty())
    return op.emitOpError("is over no axis");
  if (needsWire && *needsWire != bool(op.getWireType()))
    return op.emitOpError(*needsWire ? "adds up and has no wire"
                                     : "adds nothing up and has a wire");
  return op.isOfGradient() ? verifyGradient(op) : verifyParam(op);
}

/// A value is the same wherever it lies.
static ValueParts getTransferParts() {
  ValueParts parts;
  parts.sharding = Sharding::Elementwise;
  parts.emit = emitOperand;
  return parts;
}

#define STEPC_GRAD_TRANSFER(OP, NEEDS_WIRE)                                    \
  ValueParts OP::getParts() { return getTransferParts(); }                     \
  bool OP::isOfGradient() { return true; }                                     \
  Type OP::getEntryType() { return getEntry(); }                               \
  Type OP::getWireType() { return getWire().value_or(Type()); }                \
  LogicalResult OP::verify() {                                                 \
    return verifyTransfer(cast<TransferOpInterface>(getOperation()),           \
                          NEEDS_WIRE);                                         \
  }

STEPC_GRAD_TRANSFER(AllSliceOp, false)
STEPC_GRAD_TRANSFER(ReduceScatterOp, true)
STEPC_GRAD_TRANSFER(AllReduceOp, true)
STEPC_GRAD_TRANSFER(ToOwnerOp, std::nullopt)

#define STEPC_PARAM_TRANSFER(OP)                                               \
  ValueParts OP::getParts() { return getTransferParts(); }                     \
  bool OP::isOfGradient() { return false; }                                    \
  Type OP::getEntryType() { return {}; }                                       \
  Type OP::getWireType() { return {}; }                                        \
  LogicalResult OP::verify() {                                                 \
    return verifyTransfer(cast<TransferOpInterface>(getOperation()), false);   \
  }

STEPC_PARAM_TRANSFER(AllGatherOp)
STEPC_PARAM_TRANSFER(FromOwnerOp)
