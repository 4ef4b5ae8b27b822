//===- Places.cpp - where numbered things lie -----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/Places.h"

#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

Value Places::getCount(const Words &w) const {
  Value count;
  for (const Dim &dim : dims)
    count = count ? w.mul(count, dim.extent) : dim.extent;
  return count ? count : w.constantWord(1);
}

Value Places::getOffset(const Words &w, Value number) const {
  if (dims.empty())
    return w.constantWord(0);
  Value offset;
  for (const Dim &dim : llvm::reverse(ArrayRef(dims).drop_front())) {
    Value own = w.mul(w.rem(number, dim.extent), dim.stride);
    offset = offset ? w.add(offset, own) : own;
    number = w.div(number, dim.extent);
  }
  Value own = w.mul(number, dims.front().stride);
  return offset ? w.add(offset, own) : own;
}

PartialLayout::PartialLayout(const Words &w, const TileRow &row,
                             const ReductionDims &in)
    : w(w), count(w.constantWord(1)) {
  Extents extents = row.getExtents(in.names);
  SmallVector<unsigned> positions = in.over.getPositions();
  for (unsigned position : llvm::reverse(positions)) {
    Value leaves = extents[position];
    if (in.leaves == Leaves::Lanes && position == *in.lane)
      leaves = w.ceilDiv(leaves, STEPC_LEAF);
    if (in.leaves == Leaves::Columns && position == *row.getDims().getRow())
      leaves = row.rowBlocks;
    dims.insert(dims.begin(), {position, {leaves, count}});
    count = w.mul(count, leaves);
  }
}

const Places::Dim &PartialLayout::getLeaves(unsigned position) const {
  return llvm::find_if(dims, [&](auto &dim) { return dim.first == position; })
      ->second;
}

Places PartialLayout::getPlaces(DimSet of) const {
  Places places;
  std::optional<Places::Dim> open;
  for (const auto &[position, dim] : llvm::reverse(dims)) {
    if (of.contains(position)) {
      open = open ? Places::Dim{w.mul(dim.extent, open->extent), open->stride}
                  : dim;
      continue;
    }
    if (open)
      places.addOuter(*open);
    open.reset();
  }
  if (open)
    places.addOuter(*open);
  return places;
}
