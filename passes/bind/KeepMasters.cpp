//===- KeepMasters.cpp - step-keep-masters --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/bind/BoundRule.h"
#include "passes/bind/Masters.h"

#include "mlir/IR/Builders.h"

namespace mlir::step {
#define GEN_PASS_DEF_KEEPMASTERS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
/// Gives one bound rule the state that its parameter's f32 is kept in. The rule
/// itself stays that of an f32 parameter: only what it reads for the parameter
/// and what it leaves there are others.
class Keeper {
public:
  explicit Keeper(RuleOp rule)
      : rule(rule), builder(rule.getContext()),
        isRemainder(rule->getAttrOfType<StringAttr>(kMaster) == "remainder"),
        name(isRemainder ? "remainder" : "master"),
        param(rule.getArgumentOfKind(RoleKind::Param)) {}

  LogicalResult run();

private:
  BlockArgument addFresh();
  Value emitRounded(Value value);
  Value emitCurrent(BlockArgument state);
  Value unmark(Value value);
  void emitNew(OpOperand &returned);

  RuleOp rule;
  OpBuilder builder;
  bool isRemainder;
  StringRef name;
  BlockArgument param;
};
} // namespace

/// Whether the master is new: that states of the rule are says nothing of it.
BlockArgument Keeper::addFresh() {
  RoleAttr role = RoleAttr::get(builder.getContext(), RoleKind::Fresh);
  return rule.addArgument(role.withStates(builder.getStrArrayAttr({name})),
                          builder.getI1Type());
}

/// What the parameter has of an f32. Remainders ask for ties away from zero, so
/// every bf16 has them; an f16 is the nearest, a tie to even.
Value Keeper::emitRounded(Value value) {
  Type storage = rule.getRole(param.getArgNumber()).getStorage();
  Location loc = value.getLoc();
  if (storage.isBF16())
    return UpperHalfOp::create(builder, loc, value);
  return RoundOp::create(builder, loc, value, TypeAttr::get(storage));
}

/// The f32 before the step. A master counts where it rounds to the parameter;
/// elsewhere somebody has written the parameter since, and it is the master.
Value Keeper::emitCurrent(BlockArgument state) {
  Location loc = rule.getLoc();
  if (isRemainder)
    return JoinHalvesOp::create(builder, loc, param, state);
  Value rounded = emitRounded(state);
  Value same = CompareOp::create(builder, loc, Predicate::EQ, rounded, param);
  Value known = SelectOp::create(builder, loc, same, state, param);
  return SelectOp::create(builder, loc, addFresh(), param, known);
}

/// The new value before it is rounded for the parameter. Other roles that the
/// same value is stored for round it still.
Value Keeper::unmark(Value value) {
  auto stored = value.getDefiningOp<StoredOp>();
  if (!stored)
    return value;
  SmallVector<int64_t> others;
  for (int64_t role : stored.getRoles())
    if (role != int64_t(param.getArgNumber()))
      others.push_back(role);
  if (!others.empty()) {
    stored.setRoles(others);
    return value;
  }
  Value operand = stored.getOperand();
  stored.replaceAllUsesWith(operand);
  stored.erase();
  return operand;
}

void Keeper::emitNew(OpOperand &returned) {
  Value value = unmark(returned.get());
  auto ret = rule.getReturn();
  builder.setInsertionPoint(ret);
  Value rounded = emitRounded(value);
  Value kept = value;
  if (isRemainder)
    kept = LowerHalfOp::create(builder, ret.getLoc(), value);
  returned.set(rounded);
  ret.getValuesMutable().append(kept);
}

LogicalResult Keeper::run() {
  for (auto role : rule.getRoles().getAsRange<RoleAttr>())
    if (role.getKind() == RoleKind::State && role.getName() == name)
      return rule.emitOpError()
             << "has a state '" << name << "' of its own, which is what the "
             << "parameter's master is kept in";
  rule.nameFreshStates();
  Type storage =
      isRemainder ? Type(builder.getI16Type()) : builder.getF32Type();
  BlockArgument state = rule.addArgument(
      RoleAttr::get(builder.getContext(), RoleKind::State,
                    builder.getStringAttr(name), builder.getF64FloatAttr(0.0),
                    /*guarded=*/false, /*kept=*/false, /*given=*/false, storage,
                    /*states=*/ArrayAttr()),
      param.getType());
  Block &body = rule.getBody().front();
  Operation *first = &body.front();
  builder.setInsertionPoint(first);
  Value current = emitCurrent(state);
  param.replaceUsesWithIf(current, [&](OpOperand &use) {
    return use.getOwner() == first || first->isBeforeInBlock(use.getOwner());
  });
  SmallVector<unsigned> arguments = rule.getReturnedArguments();
  const auto *place = llvm::find(arguments, param.getArgNumber());
  // Read after the argument was added: the new state's value is still to come.
  emitNew(rule.getReturn()->getOpOperand(place - arguments.begin()));
  rule->removeAttr(kMaster);
  return success();
}

namespace {
struct KeepMasters : step::impl::KeepMastersBase<KeepMasters> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (rule->hasAttr(kMaster) && failed(Keeper(rule).run()))
        return signalPassFailure();
  }
};
} // namespace
