//===- InlineFragments.cpp - step-inline-fragments ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::step {
#define GEN_PASS_DEF_INLINEFRAGMENTS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
/// Puts fragments into one optimizer. Invariant: `gradients` holds for each
/// rule the gradient that the fragments so far have made.
class Inliner {
public:
  explicit Inliner(OptimizerOp optimizer);

  void inlineFragment(FragmentOp fragment);

  /// Gives the rules the gradient that the fragments made.
  void replaceGradients();

private:
  /// What is known of one rule of the optimizer.
  struct Target {
    RuleOp rule;
    /// The operation before which fragments go: the first of the rule itself.
    Operation *begin;
    SmallVector<OpOperand *> uses;
    Value gradient;
  };

  void copyDeclarations(FragmentOp fragment, IRMapping &mapping);
  void rename(Operation *op, StringRef fragment);
  void copyRule(RuleOp source, Target &target, IRMapping mapping);

  OptimizerOp optimizer;
  SmallVector<Target> targets;
  llvm::StringSet<> names, reports;
};
} // namespace

/// The attribute that holds the name of what a definition declares, which is
/// called `name` in each of these operations; null for others.
static StringAttr getDeclaredName(Operation *op) {
  if (!isa<HyperOp, OptionOp, ScalarOp, StatisticOp, ReportOp>(op))
    return {};
  return op->getAttrOfType<StringAttr>("name");
}

Inliner::Inliner(OptimizerOp optimizer) : optimizer(optimizer) {
  optimizer.walk([&](Operation *op) {
    if (StringAttr name = getDeclaredName(op))
      (isa<ReportOp>(op) ? reports : names).insert(name.getValue());
  });
  for (auto rule : optimizer.getBody().getOps<RuleOp>()) {
    if (rule.isBound())
      continue;
    BlockArgument gradient = rule.getArgumentOfKind(RoleKind::Grad);
    Target target{rule, &rule.getBody().front().front(), {}, gradient};
    for (Operation &op : rule.getBody().front())
      for (OpOperand &use : op.getOpOperands())
        if (use.get() == gradient)
          target.uses.push_back(&use);
    targets.push_back(std::move(target));
  }
}

void Inliner::rename(Operation *op, StringRef fragment) {
  StringAttr name = getDeclaredName(op);
  if (!name)
    return;
  llvm::StringSet<> &known = isa<ReportOp>(op) ? reports : names;
  std::string chosen = name.str();
  if (known.contains(chosen))
    chosen = (fragment + "." + chosen).str();
  known.insert(chosen);
  op->setAttr("name", StringAttr::get(op->getContext(), chosen));
}

/// Everything but the rule goes in front of the optimizer's first rule.
void Inliner::copyDeclarations(FragmentOp fragment, IRMapping &mapping) {
  OpBuilder builder = OpBuilder::atBlockEnd(&optimizer.getBody().front());
  auto rules = optimizer.getBody().getOps<RuleOp>();
  if (!rules.empty())
    builder.setInsertionPoint(*rules.begin());
  for (Operation &op : fragment.getBody().front()) {
    if (isa<RuleOp>(op))
      continue;
    Operation *copy = builder.clone(op, mapping);
    copy->walk([&](Operation *inner) { rename(inner, fragment.getSymName()); });
  }
}

/// The argument of the kind, which the rule gets if it has none.
static Value getOrAddArgument(RuleOp rule, RoleKind kind, Type type) {
  if (BlockArgument argument = rule.getArgumentOfKind(kind))
    return argument;
  SmallVector<Attribute> roles(rule.getRoles().getValue());
  roles.push_back(RoleAttr::get(rule.getContext(), kind));
  rule.setRolesAttr(ArrayAttr::get(rule.getContext(), roles));
  return rule.getBody().addArgument(type, rule.getLoc());
}

/// A type of a fragment, where `*` stands for the rule's `dims`.
static Type replaceDims(Type type, ArrayRef<StringAttr> dims) {
  if (!isShaped(type) || !isAnyRank(getDims(type).front()))
    return type;
  if (isa<SymMaskType>(type))
    return SymMaskType::get(type.getContext(), dims);
  return SymTensorType::get(type.getContext(), dims);
}

void Inliner::copyRule(RuleOp source, Target &target, IRMapping mapping) {
  OpBuilder builder(target.begin);
  ArrayRef<StringAttr> dims = getDims(target.gradient.getType());
  for (BlockArgument argument : source.getBody().getArguments()) {
    RoleKind kind = source.getRole(argument.getArgNumber()).getKind();
    mapping.map(argument,
                kind == RoleKind::Grad
                    ? target.gradient
                    : getOrAddArgument(target.rule, kind, argument.getType()));
  }
  for (Operation &op : source.getBody().front().without_terminator()) {
    Operation *copy = builder.clone(op, mapping);
    for (OpResult result : copy->getResults())
      result.setType(replaceDims(result.getType(), dims));
  }
  target.gradient = mapping.lookup(source.getReturn().getValues().front());
}

void Inliner::inlineFragment(FragmentOp fragment) {
  IRMapping mapping;
  copyDeclarations(fragment, mapping);
  for (Target &target : targets)
    copyRule(fragment.getRule(), target, mapping);
}

/// To the rule the gradient is an argument still, which is rounded where it is
/// stored and in no other use. `step-mark-stored` would round the operation's
/// result in every use.
static void storeGradient(OpOperand &use, Value gradient) {
  auto ret = cast<ReturnOp>(use.getOwner());
  auto rule = cast<RuleOp>(ret->getParentOp());
  int64_t role = rule.getReturnedArguments()[use.getOperandNumber()];
  OpBuilder builder(ret);
  use.set(StoredOp::create(builder, ret.getLoc(), gradient,
                           ArrayRef<int64_t>(role)));
}

void Inliner::replaceGradients() {
  for (Target &target : targets)
    for (OpOperand *use : target.uses) {
      if (isa<ReturnOp>(use->getOwner()) &&
          !isa<BlockArgument>(target.gradient))
        storeGradient(*use, target.gradient);
      else
        use->set(target.gradient);
    }
}

namespace {
struct InlineFragments : step::impl::InlineFragmentsBase<InlineFragments> {
  void runOnOperation() override {
    SmallVector<FragmentOp> fragments(getOperation().getOps<FragmentOp>());
    SmallVector<OptimizerOp> optimizers(getOperation().getOps<OptimizerOp>());
    if (fragments.empty() || optimizers.empty())
      return markAllAnalysesPreserved();
    for (OptimizerOp optimizer : optimizers) {
      Inliner inliner(optimizer);
      for (FragmentOp fragment : fragments)
        inliner.inlineFragment(fragment);
      inliner.replaceGradients();
    }
    for (FragmentOp fragment : fragments)
      fragment.erase();
  }
};
} // namespace
