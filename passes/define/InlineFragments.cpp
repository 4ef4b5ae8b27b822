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
/// Puts fragments into one optimizer. Invariant: each target holds the gradient
/// that the fragments so far have made.
class Inliner {
public:
  explicit Inliner(OptimizerOp optimizer);

  LogicalResult inlineFragments(ArrayRef<FragmentOp> fragments);

private:
  /// What is known of one rule of the optimizer.
  struct Target {
    RuleOp rule;
    /// The operation before which fragments go: the first of the rule itself.
    Operation *begin;
    SmallVector<OpOperand *> uses;
    Value gradient;
    /// The states that it had before any fragment's.
    ArrayAttr states;
  };

  void copyDeclarations(FragmentOp fragment, IRMapping &mapping);
  void rename(Operation *op, StringRef fragment);
  void copyBefore(RuleOp source, Target &target, IRMapping mapping);
  LogicalResult copyAfter(FragmentOp fragment, RuleOp rule, IRMapping mapping);

  /// Gives the rules the gradient that the fragments made.
  void replaceGradients();

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
    rule.nameFreshStates();
    Target target{rule,
                  &rule.getBody().front().front(),
                  {},
                  gradient,
                  rule.getStateNames()};
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

/// The rule's argument for one of a fragment that is no state, which it gets if
/// it has none. A fresh that names no states speaks of `states`.
static Value getOrAddArgument(RuleOp rule, RoleAttr role, Type type,
                              ArrayAttr states) {
  if (role.getKind() == RoleKind::Fresh && !role.getStates())
    role = role.withStates(states);
  for (BlockArgument argument : rule.getBody().getArguments()) {
    RoleAttr known = rule.getRole(argument.getArgNumber());
    if (known.getKind() == role.getKind() &&
        known.getStates() == role.getStates())
      return argument;
  }
  return rule.addArgument(role, type);
}

/// A type of a fragment, where `*` stands for the rule's `dims`.
static Type replaceDims(Type type, ArrayRef<StringAttr> dims) {
  if (!isShaped(type) || !isAnyRank(getDims(type).front()))
    return type;
  if (isa<SymMaskType>(type))
    return SymMaskType::get(type.getContext(), dims);
  return SymTensorType::get(type.getContext(), dims);
}

/// Copies what the fragment's rule does, to where the builder is.
static void copyBody(RuleOp source, ArrayRef<StringAttr> dims,
                     OpBuilder &builder, IRMapping &mapping) {
  for (Operation &op : source.getBody().front().without_terminator()) {
    Operation *copy = builder.clone(op, mapping);
    for (OpResult result : copy->getResults())
      result.setType(replaceDims(result.getType(), dims));
  }
}

void Inliner::copyBefore(RuleOp source, Target &target, IRMapping mapping) {
  OpBuilder builder(target.begin);
  for (BlockArgument argument : source.getBody().getArguments()) {
    RoleAttr role = source.getRole(argument.getArgNumber());
    mapping.map(argument,
                role.getKind() == RoleKind::Grad
                    ? target.gradient
                    : getOrAddArgument(target.rule, role, argument.getType(),
                                       target.states));
  }
  copyBody(source, getDims(target.gradient.getType()), builder, mapping);
  target.gradient = mapping.lookup(source.getReturn().getValues().front());
}

static Value createStored(Value value, unsigned role, ReturnOp ret) {
  OpBuilder builder(ret);
  return StoredOp::create(builder, ret.getLoc(), value,
                          ArrayRef<int64_t>(role));
}

/// The new param, as it is stored. `step-mark-stored` sees to operations'
/// results.
static Value getNewParam(RuleOp rule) {
  ReturnOp ret = rule.getReturn();
  BlockArgument param = rule.getArgumentOfKind(RoleKind::Param);
  SmallVector<unsigned> returned = rule.getReturnedArguments();
  auto position = llvm::find(returned, param.getArgNumber()) - returned.begin();
  OpOperand &operand = ret->getOpOperand(position);
  if (isa<BlockArgument>(operand.get()) && operand.get() != param)
    operand.set(createStored(operand.get(), param.getArgNumber(), ret));
  return operand.get();
}

LogicalResult Inliner::copyAfter(FragmentOp fragment, RuleOp rule,
                                 IRMapping mapping) {
  RuleOp source = fragment.getRule();
  Value param = getNewParam(rule);
  ArrayRef<StringAttr> dims = getDims(param.getType());
  SmallVector<unsigned> states;
  for (BlockArgument argument : source.getBody().getArguments()) {
    RoleAttr role = source.getRole(argument.getArgNumber());
    if (role.getKind() != RoleKind::State) {
      mapping.map(argument,
                  role.getKind() == RoleKind::Param
                      ? param
                      : getOrAddArgument(rule, role, argument.getType(),
                                         source.getStateNames()));
      continue;
    }
    for (auto known : rule.getRoles().getAsRange<RoleAttr>())
      if (known.getKind() == RoleKind::State &&
          known.getName() == role.getName())
        return fragment.emitOpError()
               << "has state '" << role.getDisplayName() << "', which rule '"
               << rule.getSymName() << "' has already";
    BlockArgument state =
        rule.addArgument(role, replaceDims(argument.getType(), dims));
    mapping.map(argument, state);
    states.push_back(state.getArgNumber());
  }
  ReturnOp ret = rule.getReturn();
  OpBuilder builder(ret);
  copyBody(source, dims, builder, mapping);
  for (auto [value, state] :
       llvm::zip(source.getReturn().getValues(), states)) {
    // A copy of the param is rounded alone, the param is not.
    Value copy = mapping.lookup(value);
    if (copy == param)
      copy = createStored(copy, state, ret);
    ret->insertOperands(ret->getNumOperands(), copy);
  }
  return success();
}

/// To the rule the gradient is an argument still, which is rounded where it is
/// stored and in no other use. `step-mark-stored` would round the operation's
/// result in every use.
static void storeGradient(OpOperand &use, Value gradient) {
  auto ret = cast<ReturnOp>(use.getOwner());
  auto rule = cast<RuleOp>(ret->getParentOp());
  unsigned role = rule.getReturnedArguments()[use.getOperandNumber()];
  use.set(createStored(gradient, role, ret));
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

LogicalResult Inliner::inlineFragments(ArrayRef<FragmentOp> fragments) {
  SmallVector<std::pair<FragmentOp, IRMapping>> later;
  for (FragmentOp fragment : fragments) {
    IRMapping mapping;
    copyDeclarations(fragment, mapping);
    if (fragment.getRule().comesAfter()) {
      later.emplace_back(fragment, mapping);
      continue;
    }
    for (Target &target : targets)
      copyBefore(fragment.getRule(), target, mapping);
  }
  replaceGradients();
  for (auto &[fragment, mapping] : later)
    for (Target &target : targets)
      if (failed(copyAfter(fragment, target.rule, mapping)))
        return failure();
  return success();
}

/// Before anything is moved or dropped: what no result depends on is said, too.
static LogicalResult verifySource(ModuleOp module) {
  WalkResult result = module.walk([](RuleOp rule) -> WalkResult {
    for (Operation &op : rule.getBody().front())
      if (!rule.isBound() && !isSourceOp(&op))
        return op.emitOpError("is no operation of a source definition");
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

namespace {
struct InlineFragments : step::impl::InlineFragmentsBase<InlineFragments> {
  void runOnOperation() override {
    if (failed(verifySource(getOperation())))
      return signalPassFailure();
    SmallVector<FragmentOp> fragments(getOperation().getOps<FragmentOp>());
    SmallVector<OptimizerOp> optimizers(getOperation().getOps<OptimizerOp>());
    if (fragments.empty() || optimizers.empty())
      return markAllAnalysesPreserved();
    for (OptimizerOp optimizer : optimizers)
      if (failed(Inliner(optimizer).inlineFragments(fragments)))
        return signalPassFailure();
    for (FragmentOp fragment : fragments)
      fragment.erase();
  }
};
} // namespace
