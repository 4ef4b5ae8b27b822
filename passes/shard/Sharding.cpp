//===- Sharding.cpp - what of a rule's values a rank has ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Sharding.h"

#include "passes/ParamDims.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::step;

/// Whether a rank steps its elements in whatever order: every tensor has the
/// param's dims, nothing is reduced, and no scalars are between traversals.
static bool isElementwise(RuleOp rule) {
  auto optimizer = rule->getParentOfType<OptimizerOp>();
  if (!optimizer.getBody().getOps<ScalarsOp>().empty())
    return false;
  ArrayRef<StringAttr> dims =
      getDims(rule.getArgumentOfKind(RoleKind::Param).getType());
  auto isLike = [&](Value value) {
    return !isShaped(value.getType()) || getDims(value.getType()) == dims;
  };
  Block &body = rule.getBody().front();
  return llvm::all_of(body.getArguments(), isLike) &&
         llvm::all_of(body, [&](Operation &op) {
           auto value = dyn_cast<ValueOpInterface>(op);
           return !(value &&
                    value.getParts().sharding == Sharding::Reduction) &&
                  llvm::all_of(op.getResults(), isLike);
         });
}

/// Whether it needs the whole of matrices, or has states of which a part of the
/// param has no part.
bool mlir::step::needsMatrices(RuleOp rule) {
  ParamDims dims(rule.getArgumentOfKind(RoleKind::Param).getType());
  Block &body = rule.getBody().front();
  return llvm::any_of(body, [](Operation &op) { return isMatrixOp(&op); }) ||
         llvm::any_of(body.getArguments(), [&](BlockArgument argument) {
           return isShaped(argument.getType()) &&
                  !dims.covers(argument.getType());
         });
}

SmallVector<StringAttr> mlir::step::getUnshardableDims(RuleOp rule) {
  SmallVector<StringAttr> found;
  const bool isWhole = needsMatrices(rule);
  if (!isWhole && isElementwise(rule))
    return found;
  ArrayRef<StringAttr> dims =
      getDims(rule.getArgumentOfKind(RoleKind::Param).getType());
  if (isWhole)
    found.push_back(StringAttr::get(rule.getContext(), kFlatRange));
  for (StringAttr dim : dims)
    if ((isWhole || dim.getValue() == "1" || llvm::count(dims, dim) > 1) &&
        !llvm::is_contained(found, dim))
      found.push_back(dim);
  return found;
}

std::string mlir::step::describeUnshardable(RuleOp rule, LayoutAttr layout) {
  StringAttr dim = findUnshardableDim(rule, layout);
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "has a param of '" << rule.getArgumentOfKind(RoleKind::Param).getType()
     << "'";
  if (needsMatrices(rule))
    os << " whose matrices it needs whole";
  else
    os << " with '" << dim.getValue()
       << (dim.getValue() == "1" ? "'" : "' twice");
  os << ", which cannot be sharded over ";
  llvm::interleave(
      layout.getAxes(dim).getAsRange<StringAttr>(), os,
      [&](StringAttr axis) { os << axis.getValue(); }, "+");
  return text;
}

StringAttr mlir::step::findUnshardableDim(RuleOp rule, LayoutAttr layout) {
  for (StringAttr dim : getUnshardableDims(rule))
    if (layout && layout.getAxes(dim))
      return dim;
  return {};
}

SmallVector<StringAttr>
mlir::step::getCrossedDims(RuleOp rule, ReductionOpInterface reduction) {
  LayoutAttr layout =
      rule.getVariantAttr() ? rule.getVariantAttr().getLayout() : LayoutAttr();
  if (!layout)
    return {};
  Type type = reduction.getInput().getType();
  if (layout.isFlat()) {
    ParamDims dims(rule.getArgumentOfKind(RoleKind::Param).getType());
    if (!dims.isFull(type))
      return {};
    return {StringAttr::get(rule.getContext(), kFlatRange)};
  }
  SmallVector<StringAttr> crossed;
  for (unsigned position : reduction.getReducedPositions())
    if (StringAttr dim = getDims(type)[position]; layout.getAxes(dim))
      crossed.push_back(dim);
  return crossed;
}

SmallVector<Attribute> mlir::step::getAxes(LayoutAttr layout,
                                           ArrayRef<StringAttr> dims) {
  SmallVector<Attribute> axes;
  for (StringAttr dim : dims)
    llvm::append_range(axes, layout.getAxes(dim));
  return axes;
}

bool mlir::step::isOnlyContributed(ReductionOpInterface reduction) {
  // A part of a mean is a part of the sum, divided by the whole number.
  bool isAmax = reduction.getReductionKind() == ReductionKind::Amax;
  return llvm::all_of(reduction->getUsers(), [&](Operation *user) {
    auto contribute = dyn_cast<ContributeOp>(user);
    return contribute && (contribute.getStatisticOp().getKind() ==
                          ReductionKind::Amax) == isAmax;
  });
}

SmallVector<StringAttr> mlir::step::getPartialDims(RuleOp rule, Value value) {
  auto reduction =
      dyn_cast_or_null<ReductionOpInterface>(value.getDefiningOp());
  if (!reduction || reduction.getAcrossAttr())
    return {};
  return getCrossedDims(rule, reduction);
}
