//===- Rounds.cpp - when scalars of several tensors are made -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Rounds.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

unsigned Rounds::getSegment(Operation *op) const {
  unsigned segment = 0;
  // What is inside of it uses what stands outside.
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      segment = std::max(segment, segments.lookup(operand));
  });
  return segment;
}

/// It does not wait for what it computes and does not use.
unsigned Rounds::getRound(ScalarsOp scalars) const {
  unsigned round = 0;
  DenseSet<Operation *> needed;
  for (Operation &op : llvm::reverse(scalars.getBody().front())) {
    bool isNeeded = !isa<ValueOpInterface, CallOp>(op) ||
                    llvm::any_of(op.getUsers(), [&](Operation *user) {
                      return needed.contains(user);
                    });
    if (!isNeeded)
      continue;
    needed.insert(&op);
    for (Value operand : op.getOperands()) {
      unsigned segment = segments.lookup(operand);
      // Others run before it in the same round.
      bool isResult = isa_and_nonnull<ScalarsOp>(operand.getDefiningOp());
      round = std::max(round, isResult ? segment - 1 : segment);
    }
  }
  return round;
}

void Rounds::raise(Value value, unsigned segment) {
  unsigned &known = segments[value];
  changed |= segment > known;
  known = std::max(known, segment);
}

void Rounds::visitRule(RuleOp rule, unsigned input) {
  raise(rule.getArgumentOfKind(rule.comesAfter() ? RoleKind::Param
                                                 : RoleKind::Grad),
        input);
  for (Operation &op : rule.getBody().front()) {
    if (auto contribute = dyn_cast<ContributeOp>(op))
      raise(contribute.getStatistic(), segments.lookup(contribute.getValue()));
    for (Value result : op.getResults())
      raise(result, getSegment(&op));
  }
}

bool Rounds::visit(const Source &source) {
  changed = false;
  for (ScalarsOp scalars : source.getOps<ScalarsOp>()) {
    for (Value result : scalars.getResults())
      raise(result, getRound(scalars) + 1);
  }
  unsigned gradient = 0, param = 0;
  for (FragmentOp fragment : source.fragments) {
    RuleOp rule = fragment.getRule();
    if (rule.comesAfter())
      continue;
    visitRule(rule, gradient);
    gradient = segments.lookup(rule.getReturn().getValues().front());
  }
  OptimizerOp optimizer = source.optimizer;
  for (auto rule : optimizer.getBody().getOps<RuleOp>()) {
    visitRule(rule, gradient);
    param = std::max(param, segments.lookup(rule.getReturnedParam()));
  }
  for (FragmentOp fragment : source.fragments)
    if (fragment.getRule().comesAfter())
      visitRule(fragment.getRule(), param);
  return changed;
}

Rounds::Rounds(const Source &source) {
  // Nothing depends on itself, so this ends.
  while (visit(source))
    ;
  for (ScalarsOp scalars : source.getOps<ScalarsOp>()) {
    unsigned round = getRound(scalars);
    rounds.resize(std::max<size_t>(rounds.size(), round + 1));
    rounds[round].push_back(scalars);
  }
}
