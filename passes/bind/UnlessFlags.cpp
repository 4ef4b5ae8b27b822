//===- UnlessFlags.cpp - what is left out where nobody needs it -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/bind/UnlessFlags.h"

#include "dialect/Sources.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::step;

Unneeded mlir::step::getOtherSide(OpOperand &use) {
  auto select = dyn_cast<SelectOp>(use.getOwner());
  if (!select || use.getOperandNumber() == 0 ||
      !select.getCondition().getType().isInteger(1) ||
      select.getCondition().getDefiningOp<ConstantOp>() ||
      select.getTrueValue() == select.getFalseValue())
    return {};
  return {select.getCondition(), use.get() == select.getFalseValue()};
}

Unneeded mlir::step::getUnneeded(Value value,
                                 function_ref<Unneeded(OpOperand &)> ofUse) {
  Unneeded all;
  for (OpOperand &use : value.getUses()) {
    Unneeded one = ofUse(use);
    if (!one.flag || (all.flag && !(all == one)))
      return {};
    all = one;
  }
  return all;
}

Value mlir::step::makeUnless(const Unneeded &unneeded, Operation *op) {
  moveSourcesBefore(unneeded.flag, op);
  if (unneeded.holds)
    return unneeded.flag;
  OpBuilder builder(op);
  return NotOp::create(builder, op->getLoc(), unneeded.flag);
}
