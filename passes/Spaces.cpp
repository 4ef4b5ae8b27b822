//===- Spaces.cpp - which dims of the parameter a tensor has --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Spaces.h"

using namespace mlir;
using namespace mlir::step;

SmallVector<unsigned> mlir::step::getNamedPositions(Type param) {
  SmallVector<unsigned> positions;
  for (auto [position, dim] : llvm::enumerate(getDims(param)))
    if (!dim.getValue().starts_with("...") && dim.getValue() != "1")
      positions.push_back(position);
  return positions;
}

Space mlir::step::getSpaceOf(Type param, Type type) {
  ArrayRef<StringAttr> dims = getDims(type);
  SmallVector<bool> present;
  for (unsigned position : getNamedPositions(param))
    present.push_back(dims[position].getValue() != "1");
  if (llvm::all_of(present, [](bool is) { return is; }))
    return Space::Tiles;
  if (llvm::none_of(present, [](bool is) { return is; }))
    return Space::Items;
  return present.front() ? Space::Rows : Space::Columns;
}

Level mlir::step::getLevel(Type param, Type kept) {
  if (!kept)
    return Level::Tensor;
  switch (getSpaceOf(param, kept)) {
  case Space::Columns:
    return Level::Columns;
  case Space::Items:
    return Level::Items;
  default:
    return Level::Rows;
  }
}

StringRef mlir::step::stringifyLevel(Level level) {
  switch (level) {
  case Level::Rows:
    return "rows";
  case Level::Columns:
    return "columns";
  case Level::Items:
    return "items";
  case Level::Tensor:
    return "tensor";
  }
  llvm_unreachable("not a level");
}
