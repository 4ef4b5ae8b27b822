//===- Products.h - products and transposes of matrices ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What step.matmul means, in the order that its description gives. Compiled
// code must add in the same order, and shares nothing with what is here.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_PRODUCTS_H
#define STEPC_DIALECT_REFERENCE_PRODUCTS_H

#include "dialect/reference/Interval.h"
#include "dialect/reference/Shapes.h"

namespace mlir::step::reference {

/// Of a matmul or a transpose: `items` matrices, row-major and side by side. A
/// product is of [rows, depth] and [depth, columns]; what is transposed has
/// `rows` and `columns`.
struct MatrixExtents {
  MatrixExtents(Operation *op, const Shapes &shapes);

  int64_t items, rows, depth, columns;
};

/// The products, of numbers of the compute format.
std::vector<double> multiply(const MatrixExtents &extents, ArrayRef<double> lhs,
                             ArrayRef<double> rhs, Format compute);

/// What they may be, in whatever order is added.
std::vector<Interval> multiply(const MatrixExtents &extents,
                               ArrayRef<Interval> lhs, ArrayRef<Interval> rhs,
                               Format compute);

template <typename ElementT>
std::vector<ElementT> transpose(const MatrixExtents &extents,
                                ArrayRef<ElementT> elements) {
  std::vector<ElementT> result;
  int64_t size = extents.rows * extents.columns;
  for (int64_t item = 0; item < extents.items; ++item)
    for (int64_t column = 0; column < extents.columns; ++column)
      for (int64_t row = 0; row < extents.rows; ++row)
        result.push_back(
            elements[item * size + row * extents.columns + column]);
  return result;
}

/// What a matmul or a transpose gives, of its operands' elements.
template <typename ElementT>
std::vector<ElementT> computeMatrices(Operation *op, const Shapes &shapes,
                                      ArrayRef<std::vector<ElementT>> operands,
                                      Format compute) {
  MatrixExtents extents(op, shapes);
  if (isa<TransposeOp>(op))
    return transpose<ElementT>(extents, operands[0]);
  return multiply(extents, operands[0], operands[1], compute);
}

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_PRODUCTS_H
