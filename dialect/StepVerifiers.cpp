//===- StepVerifiers.cpp - what a definition must satisfy --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/Step.h"

#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::step;

LogicalResult mlir::step::verifyName(Operation *op, StringRef what,
                                     StringRef name) {
  if (name.empty())
    return op->emitOpError() << "has an empty " << what << " name";
  // A package's manifest is JSON.
  if (size_t position; !llvm::json::isUTF8(name, &position))
    return op->emitOpError()
           << "has the " << what << " name with bytes that are not UTF-8 at "
           << position;
  // These have a meaning where names are listed: in requests for variants, on
  // command lines, in files of tensors.
  size_t position = name.find_first_of(",;:=/\"\\");
  if (position == StringRef::npos)
    position = name.find_if([](char c) { return uint8_t(c) < 0x20; });
  if (position != StringRef::npos)
    return op->emitOpError()
           << "has the " << what << " name '" << name
           << "' with a character that is not allowed at " << position;
  return success();
}

//===----------------------------------------------------------------------===//
// OptimizerOp
//===----------------------------------------------------------------------===//

LogicalResult OptimizerOp::verifyRegions() {
  if (failed(verifyName(*this, "optimizer", getSymName())))
    return failure();
  return verifyDefinition(*this);
}

//===----------------------------------------------------------------------===//
// FragmentOp
//===----------------------------------------------------------------------===//

RuleOp FragmentOp::getRule() { return *getBody().getOps<RuleOp>().begin(); }

LogicalResult FragmentOp::verifyRegions() {
  if (failed(verifyName(*this, "fragment", getSymName())) ||
      failed(verifyDefinition(*this)))
    return failure();
  auto rules = getBody().getOps<RuleOp>();
  unsigned count = std::distance(rules.begin(), rules.end());
  if (count != 1)
    return emitOpError() << "needs exactly one rule: " << count;
  return success();
}

LogicalResult HyperOp::verify() {
  if (failed(verifyName(*this, "hyper-parameter", getName())))
    return failure();
  if (!getDefaultValue().isFinite())
    return emitOpError() << "'" << getName()
                         << "' has a default that is not finite";
  return success();
}

LogicalResult OptionOp::verify() {
  if (failed(verifyName(*this, "option", getName())))
    return failure();
  bool derived = getHyper() && getPredicateAttr() && getThresholdAttr();
  bool plain = !getHyper() && !getPredicateAttr() && !getThresholdAttr();
  int defaults = bool(getDefaultValueAttr()) + bool(getDefaultIntegerAttr());
  if (!(derived && defaults == 0) && !(plain && defaults == 1))
    return emitOpError() << "'" << getName()
                         << "' needs either a default or a comparison";
  if (getType().isInteger(1) == isInteger())
    return emitOpError() << "'" << getName() << "' has type " << getType()
                         << ", which is not its default's";
  if (derived && !getHyper().getDefiningOp<HyperOp>())
    return emitOpError() << "'" << getName()
                         << "' compares something that is not a "
                            "hyper-parameter";
  if (derived && !getThresholdAttr().getValue().isFinite())
    return emitOpError() << "'" << getName()
                         << "' compares with a value that is not finite";
  return success();
}

//===----------------------------------------------------------------------===//
// ConstantOp
//===----------------------------------------------------------------------===//

LogicalResult ConstantOp::verify() {
  if (!isa<FloatAttr, BoolAttr>(getValue()))
    return emitOpError() << "has value " << getValue()
                         << ", which is neither a float nor a boolean";
  return success();
}

//===----------------------------------------------------------------------===//
// Operations that passes insert
//===----------------------------------------------------------------------===//

LogicalResult StoredOp::verify() {
  auto rule = cast<RuleOp>((*this)->getParentOp());
  if (getRoles().empty())
    return emitOpError("names no role");
  for (int64_t index : getRoles())
    if (index < 0 || index >= int64_t(rule.getRoles().size()) ||
        !rule.getRole(index).isReturned())
      return emitOpError() << "names role " << index
                           << ", which is no param or state of the rule";
  return success();
}

LogicalResult BroadcastOp::verify() {
  SmallVector<StringAttr> dims;
  bool shaped;
  if (failed(
          broadcastDims({getOperand().getType(), getType()}, dims, shaped)) ||
      ArrayRef<StringAttr>(dims) != getDims(getType()))
    return emitOpError() << "cannot make " << getType() << " of "
                         << getOperand().getType();
  return success();
}

/// The halves are those of the bits of an f32.
static LogicalResult verifyHalves(Operation *op) {
  VariantAttr variant = cast<RuleOp>(op->getParentOp()).getVariantAttr();
  if (!variant || !variant.getCompute().isF32())
    return op->emitOpError("is for bound rules that compute in f32");
  return success();
}

LogicalResult UpperHalfOp::verify() { return verifyHalves(*this); }
LogicalResult LowerHalfOp::verify() { return verifyHalves(*this); }
LogicalResult JoinHalvesOp::verify() { return verifyHalves(*this); }

LogicalResult CarriedOp::verify() {
  auto rule = dyn_cast<RuleOp>((*this)->getParentOp());
  if (rule && !rule.getVariantAttr())
    return emitOpError("is for bound rules");
  auto isCarry = [](Operation *user) { return isa<CarryOp>(user); };
  if (llvm::count_if((*this)->getUsers(), isCarry) > 1)
    return emitOpError() << "'" << getName()
                         << "' is kept by several step.carry";
  return success();
}

LogicalResult CarryOp::verify() {
  if (!getCarried().getDefiningOp<CarriedOp>())
    return emitOpError("keeps a value for what is no 'step.carried'");
  return success();
}

LogicalResult RoundStochasticOp::verify() {
  if (failed(verifyHalves(*this)))
    return failure();
  auto position = dyn_cast<BlockArgument>(getPosition());
  auto rule = cast<RuleOp>((*this)->getParentOp());
  if (!position || position.getOwner() != &rule.getBody().front() ||
      rule.getRole(position.getArgNumber()).getKind() != RoleKind::Position)
    return emitOpError("takes for a position what is not the rule's");
  return success();
}

LogicalResult RoundOp::verify() {
  if (!getStorage().isF32() && !getStorage().isBF16() && !getStorage().isF16())
    return emitOpError() << "rounds to " << getStorage()
                         << ", which is none of f32, bf16, f16";
  return success();
}
