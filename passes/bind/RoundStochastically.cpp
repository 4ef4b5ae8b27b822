//===- RoundStochastically.cpp - step-round-stochastically ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "dialect/RandomBits.h"
#include "passes/Passes.h"
#include "passes/bind/BoundRule.h"
#include "passes/bind/Rounding.h"
#include "stepc/kernel_abi.h"

#include "mlir/IR/Builders.h"

#include <string_view>

namespace mlir::step {
#define GEN_PASS_DEF_ROUNDSTOCHASTICALLY
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

// The positions that kernels are given, and those of the meaning.
static_assert(kTensorBits == STEPC_POSITION_BITS);
static_assert(std::string_view(kSeedHyper.data()) == STEPC_SEED_HYPER);
static_assert(kMostSeed == STEPC_SEED_MOST);

namespace {
/// Rounds what one bound rule stores as bf16.
class Rounder {
public:
  Rounder(RuleOp rule, HyperOp hyper)
      : rule(rule), hyper(hyper), builder(rule.getContext()),
        param(rule.getArgumentOfKind(RoleKind::Param)) {}

  void run();

private:
  void prepare();
  void round(StoredOp stored);

  RuleOp rule;
  HyperOp hyper;
  OpBuilder builder;
  BlockArgument param, position, count;
  Value seed;
};
} // namespace

/// What every rounding of the rule takes.
void Rounder::prepare() {
  if (seed)
    return;
  position = getPosition(rule);
  count = getOrAddArgument(rule, RoleKind::Count, builder.getI64Type());
  builder.setInsertionPointToStart(&rule.getBody().front());
  seed = ToI64Op::create(builder, rule.getLoc(), hyper.getResult());
}

/// The narrowest of the roles counts, as for step-resolve-storage, which
/// refuses what is stored as f16 too. A value of fewer dims has no position.
void Rounder::round(StoredOp stored) {
  auto isBF16 = [&](int64_t role) {
    return rule.getRole(role).getStorage().isBF16();
  };
  auto isF16 = [&](int64_t role) {
    return rule.getRole(role).getStorage().isF16();
  };
  const auto *role = llvm::find_if(stored.getRoles(), isBF16);
  if (role == stored.getRoles().end() || stored.getType() != param.getType() ||
      llvm::any_of(stored.getRoles(), isF16))
    return;
  prepare();
  builder.setInsertionPoint(stored);
  Value result = RoundStochasticOp::create(
      builder, stored.getLoc(), stored.getOperand(), position, seed, count,
      rule.getRole(*role).getName());
  stored.getResult().replaceAllUsesWith(result);
  stored.erase();
}

void Rounder::run() {
  rule.walk([&](StoredOp stored) { round(stored); });
  rule->removeAttr(kRounding);
  if (seed)
    rule->setAttr(kRounds, builder.getUnitAttr());
}

/// Behind the definition's own, so that these keep their places.
static FailureOr<HyperOp> addSeed(OptimizerOp optimizer) {
  OpBuilder builder(optimizer.getContext());
  builder.setInsertionPointToStart(&optimizer.getBody().front());
  for (auto hyper : optimizer.getBody().getOps<HyperOp>()) {
    if (hyper.getName() == kSeedHyper)
      return hyper.emitOpError() << "is called '" << kSeedHyper
                                 << "', as the seed of stochastic rounding is";
    builder.setInsertionPointAfter(hyper);
  }
  return HyperOp::create(builder, optimizer.getLoc(), kSeedHyper,
                         llvm::APFloat(0.0));
}

namespace {
struct RoundStochastically
    : step::impl::RoundStochasticallyBase<RoundStochastically> {
  void runOnOperation() override {
    SmallVector<RuleOp> rules;
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (rule->hasAttr(kRounding))
        rules.push_back(rule);
    if (rules.empty())
      return;
    FailureOr<HyperOp> hyper = addSeed(getOperation());
    if (failed(hyper))
      return signalPassFailure();
    for (RuleOp rule : rules)
      Rounder(rule, *hyper).run();
  }
};
} // namespace
