//===- Tensor.cpp - whole tensors on the host -----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Tensor.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace mlir::step::reference;

int64_t mlir::step::reference::getNumElements(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

std::string mlir::step::reference::toString(ArrayRef<int64_t> shape) {
  if (shape.empty())
    return "scalar";
  return join(
      map_range(shape, [](int64_t extent) { return std::to_string(extent); }),
      "x");
}

Tensor mlir::step::reference::makeFilled(ArrayRef<int64_t> shape,
                                         double value) {
  return {Shape(shape), std::vector<double>(getNumElements(shape), value)};
}

Tensor mlir::step::reference::roundTo(Format format, Tensor tensor) {
  for (double &element : tensor.elements)
    element = roundTo(format, element);
  return tensor;
}

int64_t mlir::step::reference::getBroadcastIndex(ArrayRef<int64_t> from,
                                                 ArrayRef<int64_t> to,
                                                 int64_t index) {
  if (from == to)
    return index;
  int64_t position = 0, stride = 1;
  for (size_t back = 1; back <= from.size() && back <= to.size(); ++back) {
    int64_t fromExtent = from[from.size() - back];
    int64_t toExtent = to[to.size() - back];
    // An extent of 1 has one position, whatever the coordinate.
    position += (fromExtent == 1 ? 0 : index % toExtent) * stride;
    stride *= fromExtent;
    index /= toExtent;
  }
  return position;
}
