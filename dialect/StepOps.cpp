//===- StepOps.cpp - names, result types and accessors -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/Step.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::step;

//===----------------------------------------------------------------------===//
// Names in printed IR: those of the definition
//===----------------------------------------------------------------------===//

void HyperOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getResult(), getName());
}

void OptionOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getResult(), getName());
}

void StatisticOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getResult(), getName());
}

void ScalarOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getResult(), getName());
}

void RuleOp::getAsmBlockArgumentNames(Region &region,
                                      OpAsmSetValueNameFn setName) {
  for (BlockArgument argument : region.getArguments())
    if (argument.getArgNumber() < getRoles().size())
      setName(argument, getRole(argument.getArgNumber()).getDisplayName());
}

//===----------------------------------------------------------------------===//
// Result types
//===----------------------------------------------------------------------===//

LogicalResult mlir::step::inferValue(MLIRContext *context,
                                     std::optional<Location> loc,
                                     TypeRange types,
                                     SmallVectorImpl<Type> &results) {
  // In bodies of programs, where nothing broadcasts.
  if (llvm::any_of(types, llvm::IsaPred<VectorType, Float32Type>)) {
    if (llvm::all_equal(types)) {
      results.push_back(types.front());
      return success();
    }
    if (loc)
      emitError(*loc) << "operands are of several types: " << types;
    return failure();
  }
  SmallVector<StringAttr> dims;
  bool shaped;
  if (failed(broadcastDims(types, dims, shaped))) {
    // The verifier words this for parsed operations; here the op is not built.
    if (loc)
      emitError(*loc) << "operands do not broadcast: " << types;
    return failure();
  }
  results.push_back(shaped ? Type(SymTensorType::get(context, dims))
                           : Type(Float64Type::get(context)));
  return success();
}

LogicalResult mlir::step::inferCondition(MLIRContext *context,
                                         std::optional<Location> loc,
                                         TypeRange types,
                                         SmallVectorImpl<Type> &results) {
  SmallVector<Type> values;
  if (failed(inferValue(context, loc, types, values)))
    return failure();
  bool shaped = isShaped(values.front());
  results.push_back(
      shaped ? Type(SymMaskType::get(context, getDims(values.front())))
             : Type(IntegerType::get(context, 1)));
  return success();
}

//===----------------------------------------------------------------------===//
// RuleOp
//===----------------------------------------------------------------------===//

SmallVector<unsigned> RuleOp::getReturnedArguments() {
  SmallVector<unsigned> indices;
  if (isOfFragment() && !comesAfter())
    return {getArgumentOfKind(RoleKind::Grad).getArgNumber()};
  for (unsigned index = 0; index < getRoles().size(); ++index)
    if (comesAfter() ? getRole(index).getKind() == RoleKind::State
                     : getRole(index).isReturned())
      indices.push_back(index);
  return indices;
}

Value RuleOp::getReturnedParam() {
  for (auto [index, value] :
       llvm::zip(getReturnedArguments(), getReturn().getValues()))
    if (getRole(index).getKind() == RoleKind::Param)
      return value;
  return {};
}

bool RuleOp::comesAfter() {
  return isOfFragment() && getArgumentOfKind(RoleKind::Param);
}

Value RuleOp::getGuard(unsigned index) {
  if (!getRole(index).getGuarded())
    return {};
  unsigned position = 0;
  for (unsigned before = 0; before < index; ++before)
    position += getRole(before).getGuarded();
  return position < getGuards().size() ? getGuards()[position] : Value();
}

BlockArgument RuleOp::getArgumentOfKind(RoleKind kind) {
  for (BlockArgument argument : getBody().getArguments())
    if (getRole(argument.getArgNumber()).getKind() == kind)
      return argument;
  return {};
}

BlockArgument RuleOp::addArgument(RoleAttr role, Type type) {
  SmallVector<Attribute> roles(getRoles().getValue());
  roles.push_back(role);
  setRolesAttr(ArrayAttr::get(getContext(), roles));
  return getBody().addArgument(type, getLoc());
}

SmallVector<BlockArgument> RuleOp::getFreshes() {
  return llvm::filter_to_vector(
      getBody().getArguments(), [&](BlockArgument argument) {
        return getRole(argument.getArgNumber()).getKind() == RoleKind::Fresh;
      });
}

ArrayAttr RuleOp::getStateNames() {
  SmallVector<Attribute> names;
  for (auto role : getRoles().getAsRange<RoleAttr>())
    if (role.getKind() == RoleKind::State)
      names.push_back(role.getName());
  return ArrayAttr::get(getContext(), names);
}

void RuleOp::nameFreshStates() {
  SmallVector<Attribute> roles;
  for (auto role : getRoles().getAsRange<RoleAttr>())
    roles.push_back(role.getKind() == RoleKind::Fresh && !role.getStates()
                        ? role.withStates(getStateNames())
                        : role);
  setRolesAttr(ArrayAttr::get(getContext(), roles));
}

SmallVector<RuleCondition> RuleOp::getRuleConditions() {
  SmallVector<RuleCondition> conditions;
  if (!getConditionsAttr())
    return conditions;
  auto operands = getConditionOperands();
  size_t position = 0;
  for (auto attr : getConditionsAttr().getAsRange<ConditionAttr>())
    conditions.push_back({attr, attr.hasOperand() && position < operands.size()
                                    ? operands[position++]
                                    : Value()});
  return conditions;
}

SmallVector<BoundDim> RuleOp::getRuleDims() {
  SmallVector<BoundDim> dims;
  if (!getBoundDimsAttr())
    return dims;
  size_t position = 0;
  for (auto attr : getBoundDimsAttr().getAsRange<BoundDimAttr>()) {
    bool hasOperand = attr.getOptional() && position < getDimOperands().size();
    dims.push_back({attr, hasOperand ? getDimOperands()[position++] : Value()});
  }
  return dims;
}

bool RuleOp::hasDim(StringAttr dim) {
  BlockArgument param = getArgumentOfKind(RoleKind::Param);
  return (param && llvm::is_contained(getDims(param.getType()), dim)) ||
         llvm::any_of(getRuleDims(), [&](const BoundDim &bound) {
           return bound.attr.getName() == dim;
         });
}

void RuleOp::setRuleConditions(ArrayRef<RuleCondition> conditions) {
  SmallVector<Attribute> attrs;
  SmallVector<Value> operands;
  for (const RuleCondition &condition : conditions) {
    attrs.push_back(condition.attr);
    if (condition.attr.hasOperand())
      operands.push_back(condition.operand);
  }
  getConditionOperandsMutable().assign(operands);
  setConditionsAttr(attrs.empty() ? ArrayAttr()
                                  : ArrayAttr::get(getContext(), attrs));
}

ReturnOp RuleOp::getReturn() {
  return cast<ReturnOp>(getBody().front().getTerminator());
}
