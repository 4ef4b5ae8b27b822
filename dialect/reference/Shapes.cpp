//===- Shapes.cpp - extents of symbolic dims ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Shapes.h"

#include "dialect/reference/Environment.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Error;

Error Shapes::bind(Type type, ArrayRef<int64_t> shape) {
  paramShape.assign(shape.begin(), shape.end());
  extents["1"] = {1};
  ArrayRef<StringAttr> dims = getDims(type);
  paramDims.assign(dims.begin(), dims.end());
  if (isAnyRank(dims.front())) {
    extents["*"] = paramShape;
    return Error::success();
  }
  bool batched = isBatch(dims.front());
  if (batched ? shape.size() + 1 < dims.size() : shape.size() != dims.size())
    return makeError("'param' has shape " + toString(shape) +
                     ", the rule wants " + Twine(dims.size() - batched) +
                     " dims" + (batched ? " or more" : ""));
  if (!batched)
    return bindNamed(dims, shape);
  size_t leading = shape.size() + 1 - dims.size();
  extents[dims.front().str()] = Shape(shape.take_front(leading));
  return bindNamed(dims.drop_front(), shape.drop_front(leading));
}

Error Shapes::bindNamed(ArrayRef<StringAttr> dims, ArrayRef<int64_t> shape) {
  for (auto [dim, extent] : llvm::zip(dims, shape)) {
    auto [entry, inserted] = extents.try_emplace(dim.str(), Shape{extent});
    if (entry->second.front() != extent)
      return makeError("'param' has shape " + toString(paramShape) +
                       ", where dim '" + dim.getValue() + "' is " +
                       Twine(entry->second.front()) + " and " + Twine(extent));
  }
  return Error::success();
}

ArrayRef<int64_t> Shapes::getExtents(StringAttr dim) const {
  // Of fragments, whose rules take any shape.
  return isAnyRank(dim) ? paramShape : extents.at(dim.str());
}

int64_t Shapes::getExtent(StringAttr dim) const {
  return getNumElements(getExtents(dim));
}

Shape Shapes::getShape(Type type) const {
  Shape shape;
  for (StringAttr dim : getDims(type))
    llvm::append_range(shape, getExtents(dim));
  return shape;
}

SmallVector<Axis> Shapes::getAxes(Type type) const {
  SmallVector<Axis> axes;
  ArrayRef<StringAttr> dims = getDims(type);
  // In a fragment `*` stands for the dims of the rule.
  if (isAnyRank(dims.front()))
    dims = paramDims;
  for (StringAttr dim : dims)
    axes.push_back({getExtent(dim), dim.getValue() != "1"});
  return axes;
}
