//===- ResolveOptions.cpp - step-resolve-options --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/StoredStates.h"

#include "mlir/IR/Builders.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::step {
#define GEN_PASS_DEF_RESOLVEOPTIONS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

static bool getOptionValue(RuleOp rule, OptionOp option) {
  return cast<BoolAttr>(
             rule.getVariantAttr().getOptions().get(option.getName()))
      .getValue();
}

namespace {
/// A bound rule and the states that its variant does not have, with the options
/// that guard them.
struct Resolution {
  RuleOp rule;
  SmallVector<unsigned> absent;
  SmallVector<OptionOp> guards;
};
} // namespace

static Resolution findAbsentStates(RuleOp rule) {
  Resolution resolution{rule, {}, {}};
  for (unsigned index = 0; index < rule.getRoles().size(); ++index) {
    Value guard = rule.getGuard(index);
    if (!guard || getOptionValue(rule, guard.getDefiningOp<OptionOp>()))
      continue;
    resolution.absent.push_back(index);
    resolution.guards.push_back(guard.getDefiningOp<OptionOp>());
  }
  return resolution;
}

/// Replaces the options in the body by constants.
static void substituteOptions(RuleOp rule) {
  OpBuilder builder = OpBuilder::atBlockBegin(&rule.getBody().front());
  auto optimizer = rule->getParentOfType<OptimizerOp>();
  for (auto option : optimizer.getBody().getOps<OptionOp>()) {
    if (option.isInteger())
      continue;
    auto constant =
        ConstantOp::create(builder, option.getLoc(), builder.getI1Type(),
                           builder.getBoolAttr(getOptionValue(rule, option)));
    option.getResult().replaceUsesWithIf(constant, [&](OpOperand &use) {
      return rule->isProperAncestor(use.getOwner());
    });
  }
}

/// A variant is made only where the conditions on options hold.
static void dropOptionConditions(RuleOp rule) {
  SmallVector<RuleCondition> kept;
  for (const RuleCondition &condition : rule.getRuleConditions())
    if (condition.attr.getKind() != ConditionKind::Option)
      kept.push_back(condition);
  rule.setRuleConditions(kept);
}

/// Removes the absent states' arguments, which nothing may use any more.
static LogicalResult removeArguments(const Resolution &resolution) {
  auto [rule, absent, guards] = resolution;
  Block &block = rule.getBody().front();
  for (auto [index, guard] : llvm::zip(absent, guards)) {
    BlockArgument argument = block.getArgument(index);
    if (argument.use_empty())
      continue;
    return (*argument.user_begin())->emitOpError()
           << "needs state '" << rule.getRole(index).getDisplayName()
           << "', which does not exist where option '" << guard.getName()
           << "' is false";
  }
  eraseStates(rule, absent);
  // What is left exists in this variant.
  SmallVector<Attribute> roles;
  for (auto role : rule.getRoles().getAsRange<RoleAttr>())
    roles.push_back(role.withoutGuard());
  rule.getGuardsMutable().clear();
  rule.setRolesAttr(ArrayAttr::get(rule.getContext(), roles));
  return success();
}

namespace {
/// Takes the operand that an option chooses, in the shape of the result.
struct DecideSelect : OpRewritePattern<SelectOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SelectOp op,
                                PatternRewriter &rewriter) const override {
    auto constant = op.getCondition().getDefiningOp<ConstantOp>();
    auto condition =
        constant ? dyn_cast<BoolAttr>(constant.getValue()) : BoolAttr();
    if (!condition)
      return failure();
    Value chosen =
        condition.getValue() ? op.getTrueValue() : op.getFalseValue();
    if (chosen.getType() != op.getType())
      chosen = BroadcastOp::create(rewriter, op.getLoc(), op.getType(), chosen);
    rewriter.replaceOp(op, chosen);
    return success();
  }
};

struct ResolveOptions : step::impl::ResolveOptionsBase<ResolveOptions> {
  void runOnOperation() override {
    SmallVector<Resolution> resolutions;
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (rule.isBound())
        resolutions.push_back(findAbsentStates(rule));
    for (const Resolution &resolution : resolutions) {
      dropStoredValues(resolution.rule, resolution.absent);
      dropOptionConditions(resolution.rule);
      substituteOptions(resolution.rule);
    }
    // Decides the selects, and removes what only dropped values needed.
    RewritePatternSet patterns(&getContext());
    patterns.add<DecideSelect>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
    for (const Resolution &resolution : resolutions)
      if (failed(removeArguments(resolution)))
        return signalPassFailure();
  }
};
} // namespace
