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

/// Of an operation on matrices: `items` of them, row-major and side by side. A
/// product is of [rows, depth] and [depth, columns]; what is transposed or
/// decomposed has `rows` and `columns`, and `columns` of `depth` are the first
/// of some.
struct MatrixExtents {
  MatrixExtents(Operation *op, const Shapes &shapes);

  int64_t items, rows, depth, columns;
};

/// How a leaf of a product is added up: in f32, in f64, or in f32 of pairs of
/// factors in bf16.
enum class Chain { F32, F64, Pairs };

/// The products, of numbers of the compute format.
std::vector<double> multiply(const MatrixExtents &extents, ArrayRef<double> lhs,
                             ArrayRef<double> rhs, Format compute, Chain chain);

/// What they may be, in whatever order is added.
std::vector<Interval> multiply(const MatrixExtents &extents,
                               ArrayRef<Interval> lhs, ArrayRef<Interval> rhs,
                               Format compute, Chain chain);

/// Eigenvectors of the matrices: by the runtime's algorithm, so that they have
/// its bits.
std::vector<double> decompose(const MatrixExtents &extents,
                              ArrayRef<double> elements, Format compute);

/// What they may be, of whatever matrices: no component is above 1.
std::vector<Interval> decompose(const MatrixExtents &extents,
                                ArrayRef<Interval> elements, Format compute);

/// Their eigenvalues, which that algorithm finds too.
std::vector<double> findValues(const MatrixExtents &extents,
                               ArrayRef<double> elements, Format compute);

/// None is larger than the root of the sum of squares.
std::vector<Interval> findValues(const MatrixExtents &extents,
                                 ArrayRef<Interval> elements, Format compute);

/// Orthonormal bases of the columns, by the runtime's algorithm too.
std::vector<double> orthonormalize(const MatrixExtents &extents,
                                   ArrayRef<double> elements, Format compute);

/// As `decompose`'s.
inline std::vector<Interval> orthonormalize(const MatrixExtents &extents,
                                            ArrayRef<Interval> elements,
                                            Format compute) {
  return decompose(extents, elements, compute);
}

/// Columns in the order of their keys.
std::vector<double> sortColumns(const MatrixExtents &extents,
                                ArrayRef<double> elements,
                                ArrayRef<double> keys);

/// Where keys may be in several orders, any column may stand anywhere.
std::vector<Interval> sortColumns(const MatrixExtents &extents,
                                  ArrayRef<Interval> elements,
                                  ArrayRef<Interval> keys);

/// What a step.identity or a step.index makes, of the compute format.
std::vector<double> makeMatrices(Operation *op, const Shapes &shapes,
                                 Format compute);

template <typename ElementT>
std::vector<ElementT> takeDiagonal(const MatrixExtents &extents,
                                   ArrayRef<ElementT> elements) {
  std::vector<ElementT> result;
  int64_t n = extents.columns;
  for (int64_t item = 0; item < extents.items; ++item)
    for (int64_t i = 0; i < n; ++i)
      result.push_back(elements[(item * n + i) * n + i]);
  return result;
}

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

template <typename ElementT>
std::vector<ElementT> takeFirst(const MatrixExtents &extents,
                                ArrayRef<ElementT> elements) {
  std::vector<ElementT> result;
  for (int64_t row = 0; row < extents.items * extents.rows; ++row)
    llvm::append_range(result,
                       elements.slice(row * extents.depth, extents.columns));
  return result;
}

/// The lower halves are the upper ones too.
template <typename ElementT>
void mirror(const MatrixExtents &extents, MutableArrayRef<ElementT> matrices) {
  int64_t n = extents.rows;
  for (int64_t item = 0; item < extents.items; ++item)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < i; ++j)
        matrices[(item * n + j) * n + i] = matrices[(item * n + i) * n + j];
}

inline Chain getChain(MatmulOp product, Format compute) {
  if (product.getFactors())
    return Chain::Pairs;
  bool isDouble = product.getAccumulate() || compute == Format::F64;
  return isDouble ? Chain::F64 : Chain::F32;
}

/// What an operation on matrices gives, of its operands' elements.
template <typename ElementT>
std::vector<ElementT> computeMatrices(Operation *op, const Shapes &shapes,
                                      ArrayRef<std::vector<ElementT>> operands,
                                      Format compute) {
  if (isa<IdentityOp, IndexOp>(op)) {
    std::vector<ElementT> made;
    for (double element : makeMatrices(op, shapes, compute))
      if constexpr (std::is_same_v<ElementT, double>)
        made.push_back(element);
      else
        made.push_back(Interval::of(element));
    return made;
  }
  MatrixExtents extents(op, shapes);
  if (isa<TransposeOp>(op))
    return transpose<ElementT>(extents, operands[0]);
  if (isa<FirstOp>(op))
    return takeFirst<ElementT>(extents, operands[0]);
  if (isa<DiagonalOp>(op))
    return takeDiagonal<ElementT>(extents, operands[0]);
  if (isa<EighOp>(op))
    return decompose(extents, ArrayRef(operands[0]), compute);
  if (isa<EigenvaluesOp>(op))
    return findValues(extents, ArrayRef(operands[0]), compute);
  if (isa<QrOp>(op))
    return orthonormalize(extents, ArrayRef(operands[0]), compute);
  if (isa<SortOp>(op))
    return sortColumns(extents, ArrayRef(operands[0]), ArrayRef(operands[1]));
  auto product = cast<MatmulOp>(op);
  std::vector<ElementT> made = multiply(extents, operands[0], operands[1],
                                        compute, getChain(product, compute));
  if (product.getSymmetric())
    mirror<ElementT>(extents, made);
  return made;
}

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_PRODUCTS_H
