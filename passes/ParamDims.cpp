//===- ParamDims.cpp - sets of a param's dims -----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/ParamDims.h"

#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace mlir::step;

SmallVector<unsigned> DimSet::getPositions() const {
  SmallVector<unsigned> positions;
  for (uint32_t left = bits; left; left &= left - 1)
    positions.push_back(llvm::countr_zero(left));
  return positions;
}

std::optional<unsigned> DimSet::getInnermost() const {
  return bits ? std::optional(31u - llvm::countl_zero(bits)) : std::nullopt;
}

ParamDims::ParamDims(Type param) : names(getDims(param)) {
  for (auto [position, dim] : llvm::enumerate(names))
    if (!isBatch(dim) && dim.getValue() != "1")
      named.push_back(position);
}

std::optional<unsigned> ParamDims::getRow() const {
  return named.size() > 1 ? std::optional(named[named.size() - 2])
                          : std::nullopt;
}

DimSet ParamDims::getAll() const {
  DimSet all;
  for (unsigned position = 0; position < size(); ++position)
    all.insert(position);
  return all;
}

DimSet ParamDims::getRows() const { return getAll() - DimSet::of(getLane()); }

DimSet ParamDims::getOuter() const {
  std::optional<unsigned> row = getRow();
  return row ? getRows() - DimSet::of(*row) : getRows();
}

bool ParamDims::covers(Type type) const {
  ArrayRef<StringAttr> dims = getDims(type);
  return dims.size() == names.size() &&
         llvm::all_of(llvm::zip(dims, names), [](auto pair) {
           auto [dim, own] = pair;
           return dim == own || dim.getValue() == "1";
         });
}

bool ParamDims::isFull(Type type) const { return getDims(type) == names; }

DimSet ParamDims::getSet(Type type, Type over) const {
  DimSet set;
  if (!type)
    return set;
  const bool covered = covers(over);
  for (auto [position, dim] : llvm::enumerate(getDims(type)))
    if (dim.getValue() != "1" || (covered && names[position].getValue() == "1"))
      set.insert(position);
  return set;
}

ParamDims mlir::step::getParamDims(ProgramOp program) {
  return ParamDims(program.getParam().getType());
}

ParamDims mlir::step::getParamDims(Operation *op) {
  return getParamDims(op->getParentOfType<ProgramOp>());
}

ReductionDims::ReductionDims(const ParamDims &dims, Type overType,
                             Type keptType)
    : names(getDims(overType)), over(dims.getSet(overType)),
      kept(dims.getSet(keptType, overType)), reduced(over - kept),
      isKernel(dims.isFull(overType)) {
  lane = over.getInnermost();
  if (isKernel)
    lane = dims.getLane();
  std::optional<unsigned> row = dims.getRow();
  if (!lane || reduced.contains(*lane))
    leaves = Leaves::Lanes;
  else if (isKernel && row && reduced.contains(*row))
    leaves = Leaves::Columns;
  else
    leaves = Leaves::Elements;
  reducesOuter =
      isKernel && !kept.empty() && !(reduced & dims.getOuter()).empty();
}
