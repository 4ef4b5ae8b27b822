//===- Sources.cpp - what a value is computed of --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "dialect/Sources.h"

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace mlir::step;

bool mlir::step::walkSources(Value value, function_ref<Follow(Value)> enter,
                             function_ref<void(Operation *)> leave) {
  // Operations that were entered and not left, and which operand is next.
  SmallVector<std::pair<Operation *, unsigned>> open;
  DenseSet<Operation *> done;
  auto visit = [&](Value next) {
    Follow follow = enter(next);
    Operation *op = next.getDefiningOp();
    if (follow == Follow::Operands && op && !done.contains(op))
      open.push_back({op, 0});
    return follow != Follow::Stop;
  };
  if (!visit(value))
    return false;
  while (!open.empty()) {
    auto &[op, operand] = open.back();
    if (operand < op->getNumOperands()) {
      if (!visit(op->getOperand(operand++)))
        return false;
      continue;
    }
    Operation *left = op;
    open.pop_back();
    done.insert(left);
    leave(left);
  }
  return true;
}

void mlir::step::moveSourcesBefore(Value value, Operation *op) {
  auto enter = [&](Value next) {
    Operation *source = next.getDefiningOp();
    return source && source->getBlock() == op->getBlock() &&
                   op->isBeforeInBlock(source)
               ? Follow::Operands
               : Follow::Nothing;
  };
  walkSources(value, enter, [&](Operation *source) { source->moveBefore(op); });
}
