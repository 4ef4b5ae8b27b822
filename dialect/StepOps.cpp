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

void RuleOp::getAsmBlockArgumentNames(Region &region,
                                      OpAsmSetValueNameFn setName) {
  for (BlockArgument argument : region.getArguments())
    if (argument.getArgNumber() < getRoles().size())
      setName(argument, getRole(argument.getArgNumber()).getDisplayName());
}

//===----------------------------------------------------------------------===//
// Result types
//===----------------------------------------------------------------------===//

/// The broadcast of `types`: a tensor, or f64 if none is shaped.
static LogicalResult inferValue(MLIRContext *context,
                                std::optional<Location> loc, TypeRange types,
                                SmallVectorImpl<Type> &results) {
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

#define STEP_INFER_VALUE(OP)                                                   \
  LogicalResult OP::inferReturnTypes(                                          \
      MLIRContext *context, std::optional<Location> loc, ValueRange operands,  \
      DictionaryAttr, OpaqueProperties, RegionRange,                           \
      SmallVectorImpl<Type> &results) {                                        \
    return inferValue(context, loc, operands.getTypes(), results);             \
  }
STEP_INFER_VALUE(NegOp)
STEP_INFER_VALUE(AbsOp)
STEP_INFER_VALUE(SqrtOp)
STEP_INFER_VALUE(SignOp)
STEP_INFER_VALUE(AddOp)
STEP_INFER_VALUE(SubOp)
STEP_INFER_VALUE(MulOp)
STEP_INFER_VALUE(DivOp)
STEP_INFER_VALUE(MaximumOp)
STEP_INFER_VALUE(MinimumOp)
STEP_INFER_VALUE(LerpOp)
STEP_INFER_VALUE(SelectOp)
#undef STEP_INFER_VALUE

LogicalResult CompareOp::inferReturnTypes(MLIRContext *context,
                                          std::optional<Location> loc,
                                          ValueRange operands, DictionaryAttr,
                                          OpaqueProperties, RegionRange,
                                          SmallVectorImpl<Type> &results) {
  SmallVector<Type> values;
  if (failed(inferValue(context, loc, operands.getTypes(), values)))
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
  for (unsigned index = 0; index < getRoles().size(); ++index)
    if (getRole(index).isReturned())
      indices.push_back(index);
  return indices;
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

ReturnOp RuleOp::getReturn() {
  return cast<ReturnOp>(getBody().front().getTerminator());
}
