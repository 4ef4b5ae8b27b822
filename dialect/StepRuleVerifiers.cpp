//===- StepRuleVerifiers.cpp - what a rule must satisfy -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/Step.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mlir::step;

/// The type that an argument of this role must have: any tensor for the
/// tensors, i64 for the count, i1 for fresh.
static bool roleAgreesWithType(RoleAttr role, Type type) {
  switch (role.getKind()) {
  case RoleKind::Count:
    return type.isInteger(64);
  case RoleKind::Fresh:
    return type.isInteger(1);
  default:
    return isa<SymTensorType>(type);
  }
}

/// Checks how many arguments have which kind.
static LogicalResult verifyKinds(RuleOp rule) {
  unsigned counts[7] = {};
  // A fresh that names its states is one of several.
  for (auto role : rule.getRoles().getAsRange<RoleAttr>())
    counts[static_cast<unsigned>(role.getKind())] += !role.getStates();
  SmallVector<RoleKind> needed;
  if (!rule.isOfFragment() || rule.comesAfter())
    needed.push_back(RoleKind::Param);
  if (!rule.comesAfter())
    needed.push_back(RoleKind::Grad);
  for (RoleKind kind : needed)
    if (counts[static_cast<unsigned>(kind)] != 1)
      return rule.emitOpError()
             << "needs exactly one " << stringifyRoleKind(kind) << ": "
             << counts[static_cast<unsigned>(kind)];
  for (RoleKind kind : {RoleKind::Count, RoleKind::Fresh, RoleKind::Position})
    if (counts[static_cast<unsigned>(kind)] > 1)
      return rule.emitOpError()
             << "takes at most one " << stringifyRoleKind(kind) << ": "
             << counts[static_cast<unsigned>(kind)];
  if (counts[static_cast<unsigned>(RoleKind::Position)] && !rule.isBound())
    return rule.emitOpError("has a position, which is added by binding");
  return success();
}

/// A fragment sees a gradient, or a param with states of its own.
static LogicalResult verifyRolesInFragment(RuleOp rule) {
  if (!rule.isOfFragment())
    return success();
  RoleKind refused = rule.comesAfter() ? RoleKind::Grad : RoleKind::State;
  for (BlockArgument argument : rule.getBody().getArguments()) {
    RoleAttr role = rule.getRole(argument.getArgNumber());
    if (role.getKind() == refused)
      return rule.emitOpError()
             << "has '" << role.getDisplayName()
             << "' in a fragment, which sees either a grad or a param and "
                "states";
    if (role.getGuarded())
      return rule.emitOpError()
             << "guards state '" << role.getDisplayName() << "' in a fragment";
    if (role.getGiven())
      return rule.emitOpError()
             << "has state '" << role.getDisplayName()
             << "' given in a fragment, which writes its states";
    if (role.isTensor() && !isAnyRank(getDims(argument.getType()).front()))
      return rule.emitOpError() << "has '" << role.getDisplayName()
                                << "' of other dims than [*] in a fragment";
  }
  return success();
}

/// The runtime has a bit for each.
constexpr unsigned kMaxFreshes = 64;

/// What a fresh names are states of the rule.
static LogicalResult verifyFreshes(RuleOp rule) {
  llvm::StringSet<> names;
  for (auto role : rule.getRoles().getAsRange<RoleAttr>())
    if (role.getKind() == RoleKind::State)
      names.insert(role.getName().getValue());
  unsigned number = 0;
  for (auto role : rule.getRoles().getAsRange<RoleAttr>()) {
    number += role.getKind() == RoleKind::Fresh;
    if (!role.getStates())
      continue;
    for (auto name : role.getStates().getAsRange<StringAttr>())
      if (!names.contains(name.getValue()))
        return rule.emitOpError() << "asks whether state '" << name.getValue()
                                  << "' is fresh, which it does not have";
  }
  if (number > kMaxFreshes)
    return rule.emitOpError()
           << "takes " << number << " freshes, the most are " << kMaxFreshes;
  return success();
}

/// A state's dims are among those of the param, or 1.
static LogicalResult verifyStates(RuleOp rule) {
  llvm::StringSet<> names;
  for (BlockArgument argument : rule.getBody().getArguments()) {
    RoleAttr role = rule.getRole(argument.getArgNumber());
    if (role.getKind() != RoleKind::State)
      continue;
    StringRef name = role.getName();
    if (failed(verifyName(rule, "state", name)))
      return failure();
    if (name == "param" || name == "grad" || name == "position")
      return rule.emitOpError() << "calls a state '" << name
                                << "', which is the name of another role";
    if (!names.insert(name).second)
      return rule.emitOpError() << "declares state '" << name << "' twice";
    for (StringAttr dim : getDims(argument.getType()))
      if (dim.getValue() != "1" && !rule.hasDim(dim))
        return rule.emitOpError()
               << "state '" << name << "' has dim '" << dim.getValue()
               << "', which the param does not have";
  }
  return success();
}

/// Each dim that follows from others is new, and follows from single dims of
/// the param and integer options.
static LogicalResult verifyDims(RuleOp rule) {
  llvm::StringSet<> names;
  SmallVector<BoundDim> dims = rule.getRuleDims();
  if (dims.empty() && rule.getDimOperands().empty())
    return success();
  if (rule.isOfFragment())
    return rule.emitOpError("has dims of its own in a fragment");
  if (dims.size() > kMaxBoundDims)
    return rule.emitOpError()
           << "has " << dims.size()
           << " dims that follow from others, the most are " << kMaxBoundDims;
  ArrayRef<StringAttr> param =
      getDims(rule.getArgumentOfKind(RoleKind::Param).getType());
  size_t operands = 0;
  for (const BoundDim &dim : dims) {
    StringRef name = dim.attr.getName();
    operands += dim.attr.getOptional();
    if (llvm::is_contained(param, dim.attr.getName()) ||
        !names.insert(name).second)
      return rule.emitOpError() << "has dim '" << name << "' twice";
    for (auto of : dim.attr.getOf().getAsRange<StringAttr>())
      if (isBatch(of) || isAnyRank(of) || !llvm::is_contained(param, of))
        return rule.emitOpError()
               << "has dim '" << name << "' of '" << of.getValue()
               << "', which is no single dim of the param";
    auto option =
        dim.operand ? dim.operand.getDefiningOp<OptionOp>() : OptionOp();
    if (dim.attr.getOptional() && !(option && option.isInteger()))
      return rule.emitOpError() << "has dim '" << name
                                << "' of something that is not an integer "
                                   "option";
  }
  if (operands != rule.getDimOperands().size())
    return rule.emitOpError()
           << "has " << operands << " dims of options and "
           << rule.getDimOperands().size() << " operands for them";
  return success();
}

static LogicalResult verifyGuards(RuleOp rule) {
  unsigned guarded =
      llvm::count_if(rule.getRoles().getAsRange<RoleAttr>(),
                     [](RoleAttr role) { return role.getGuarded(); });
  if (guarded != rule.getGuards().size())
    return rule.emitOpError() << "has " << guarded << " guarded states and "
                              << rule.getGuards().size() << " guards";
  for (Value guard : rule.getGuards())
    if (!guard.getDefiningOp<OptionOp>())
      return rule.emitOpError("has a guard that is not an option");
  return success();
}

/// A parameter's rule is chosen once, when it is bound, so a condition cannot
/// depend on a hyper-parameter.
static LogicalResult verifyConditions(RuleOp rule) {
  auto attrs = rule.getConditionsAttr();
  auto conditions = rule.getRuleConditions();
  unsigned wanted =
      llvm::count_if(conditions, [](const RuleCondition &condition) {
        return condition.attr.hasOperand();
      });
  if (wanted != rule.getConditionOperands().size())
    return rule.emitOpError()
           << "has " << wanted << " conditions of options and "
           << rule.getConditionOperands().size() << " operands for them";
  if (attrs && rule.isOfFragment())
    return rule.emitOpError("has conditions in a fragment");
  for (auto [attr, operand] : conditions) {
    if (!attr.hasOperand())
      continue;
    auto option = operand.getDefiningOp<OptionOp>();
    bool isOption = attr.getKind() == ConditionKind::Option;
    if (!option || option.isInteger() == isOption)
      return rule.emitOpError()
             << "has a condition on something that is not "
             << (isOption ? "an option" : "an integer option");
    if (option.isDerived())
      return rule.emitOpError()
             << "has a condition on option '" << option.getName()
             << "', which can change from step to step";
  }
  return success();
}

/// Storage types come with the variant, for all tensors or for none, and the
/// variant says what every option is.
static LogicalResult verifyBinding(RuleOp rule) {
  for (auto role : rule.getRoles().getAsRange<RoleAttr>())
    if (role.isTensor() && bool(role.getStorage()) != rule.isBound())
      return rule.emitOpError()
             << (rule.isBound() ? "has no storage type for '"
                                : "has no variant, but a storage type for '")
             << role.getDisplayName() << "'";
  auto optimizer = rule->getParentOfType<OptimizerOp>();
  if (!rule.isBound() || !optimizer)
    return success();
  for (auto option : optimizer.getBody().getOps<OptionOp>())
    if (!option.isInteger() &&
        !isa_and_nonnull<BoolAttr>(
            rule.getVariantAttr().getOptions().get(option.getName())))
      return rule.emitOpError()
             << "has a variant that does not say what option '"
             << option.getName() << "' is";
  return success();
}

/// A fragment goes with rules of any dims, and is inlined before rules are
/// bound.
static LogicalResult verifyInFragment(RuleOp rule) {
  if (rule.isBound())
    return rule.emitOpError("is bound in a fragment");
  return rule.comesAfter() ? verifyStates(rule) : success();
}

LogicalResult RuleOp::verify() {
  if (failed(verifyName(*this, "rule", getSymName())))
    return failure();
  Block &block = getBody().front();
  if (getRoles().size() != block.getNumArguments())
    return emitOpError() << "has " << getRoles().size() << " roles and "
                         << block.getNumArguments() << " arguments";
  for (BlockArgument argument : block.getArguments()) {
    RoleAttr role = getRole(argument.getArgNumber());
    if (!roleAgreesWithType(role, argument.getType()))
      return emitOpError() << "argument " << argument.getArgNumber()
                           << " has role '" << stringifyRoleKind(role.getKind())
                           << "' and type " << argument.getType();
  }
  if (failed(verifyRolesInFragment(*this)) || failed(verifyKinds(*this)))
    return failure();
  if (failed(verifyGuards(*this)) || failed(verifyConditions(*this)) ||
      failed(verifyFreshes(*this)) || failed(verifyDims(*this)))
    return failure();
  if (isOfFragment())
    return verifyInFragment(*this);
  Type grad = getArgumentOfKind(RoleKind::Grad).getType();
  Type param = getArgumentOfKind(RoleKind::Param).getType();
  if (param != grad)
    return emitOpError() << "has param and grad of different dims: " << param
                         << " and " << grad;
  if (failed(verifyStates(*this)))
    return failure();
  return verifyBinding(*this);
}

bool mlir::step::isValueOp(Operation *op) { return isa<ValueOpInterface>(op); }

bool mlir::step::isSourceOp(Operation *op) {
  auto reduction = dyn_cast<ReductionOpInterface>(op);
  auto matrix = dyn_cast<MatrixOpInterface>(op);
  auto normal = dyn_cast<RandomNormalOp>(op);
  return !op->hasTrait<InsertedByPasses>() &&
         !(normal && normal.getPosition()) &&
         !(reduction && (reduction.getAcrossAttr() || reduction.getUnless())) &&
         !(matrix && matrix.getUnless());
}

/// Statistics go through step.scalars, and integer options are for conditions
/// and dims.
static LogicalResult verifyOperandsInRule(Operation *op) {
  for (OpOperand &operand : op->getOpOperands()) {
    auto statistic = operand.get().getDefiningOp<StatisticOp>();
    if (statistic &&
        !(isa<ContributeOp>(op) && operand.getOperandNumber() == 0))
      return op->emitOpError() << "reads statistic '" << statistic.getName()
                               << "' in a rule, where it is not complete";
    auto option = operand.get().getDefiningOp<OptionOp>();
    if (option && option.isInteger())
      return op->emitOpError() << "reads option '" << option.getName()
                               << "', an integer, which only conditions and "
                                  "dims can";
  }
  return success();
}

LogicalResult RuleOp::verifyRegions() {
  Block &block = getBody().front();
  if (block.empty() || !isa<ReturnOp>(block.back()))
    return emitOpError("does not end in 'step.return'");
  for (Operation &op : block.without_terminator()) {
    if (!isValueOp(&op) &&
        !isa<CallOp, RepeatOp, WhenOp, ContributeOp, CarryOp>(op))
      return op.emitOpError("is not allowed in a rule, only operations of the "
                            "language");
    WalkResult result = op.walk([](Operation *inner) -> WalkResult {
      return verifyOperandsInRule(inner);
    });
    if (result.wasInterrupted())
      return failure();
  }
  return success();
}

LogicalResult ReturnOp::verify() {
  auto rule = cast<RuleOp>((*this)->getParentOp());
  SmallVector<unsigned> indices = rule.getReturnedArguments();
  if (getValues().size() != indices.size()) {
    auto error = emitOpError() << "returns " << getValues().size()
                               << " values; the rule has ";
    if (rule.comesAfter())
      return error << indices.size() << " states";
    bool hasGiven = llvm::any_of(rule.getRoles().getAsRange<RoleAttr>(),
                                 [](RoleAttr role) { return role.getGiven(); });
    return error << "a " << (rule.isOfFragment() ? "grad" : "param") << " and "
                 << indices.size() - 1 << " states"
                 << (hasGiven ? " beside those that are given" : "");
  }
  for (auto [value, index] : llvm::zip(getValues(), indices)) {
    Type expected = rule.getBody().getArgument(index).getType();
    if (value.getType() != expected)
      return emitOpError() << "returns " << value.getType() << " for '"
                           << rule.getRole(index).getDisplayName()
                           << "', which is " << expected;
    // Where it is rounded to its storage type follows from who makes it.
    if (isa_and_nonnull<CallOp, RepeatOp>(value.getDefiningOp()))
      return emitOpError() << "returns for '"
                           << rule.getRole(index).getDisplayName()
                           << "' what a '" << value.getDefiningOp()->getName()
                           << "' gives, and not a value that an operation of "
                              "the rule makes";
  }
  return success();
}
