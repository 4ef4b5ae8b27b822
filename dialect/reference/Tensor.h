//===- Tensor.h - whole tensors on the host ---------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_TENSOR_H
#define STEPC_DIALECT_REFERENCE_TENSOR_H

#include "dialect/reference/Rounding.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <string>
#include <vector>

namespace mlir::step::reference {

using Shape = llvm::SmallVector<int64_t>;

/// Elements in row-major order; as many as the product of the extents.
template <typename ElementT>
struct Array {
  Shape shape;
  std::vector<ElementT> elements;
};

/// Elements of any format are doubles here, which hold each of them exactly.
using Tensor = Array<double>;
using Mask = Array<char>;

/// The number of elements of a shape; 1 for that of a scalar.
int64_t getNumElements(llvm::ArrayRef<int64_t> shape);

/// "2x3", or "scalar" for no dims.
std::string toString(llvm::ArrayRef<int64_t> shape);

/// A tensor with every element `value`.
Tensor makeFilled(llvm::ArrayRef<int64_t> shape, double value);

/// `tensor` with each element rounded to `format`.
Tensor roundTo(Format format, Tensor tensor);

/// The position in an array of shape `from` of the element that broadcasts to
/// position `index` in an array of shape `to`. Extents are equal or 1 in
/// `from`, which may have fewer dims only if it has one element.
int64_t getBroadcastIndex(llvm::ArrayRef<int64_t> from,
                          llvm::ArrayRef<int64_t> to, int64_t index);

/// The element of `array` that broadcasts to position `index` of `shape`.
template <typename ElementT>
ElementT getBroadcast(const Array<ElementT> &array,
                      llvm::ArrayRef<int64_t> shape, int64_t index) {
  return array.elements[getBroadcastIndex(array.shape, shape, index)];
}

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_TENSOR_H
