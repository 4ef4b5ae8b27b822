//===- Products.cpp - products and transposes of matrices ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Products.h"

#include "numerics/Order.h"
#include "numerics/Orthonormal.h"
#include "numerics/SymmetricEigen.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

static constexpr int64_t kLeaf = 512;

MatrixExtents::MatrixExtents(Operation *op, const Shapes &shapes) {
  ArrayRef<StringAttr> dims = getDims(op->getOperand(0).getType());
  items = 1;
  for (StringAttr dim : dims.drop_back(2))
    items *= shapes.getExtent(dim);
  rows = shapes.getExtent(dims[dims.size() - 2]);
  depth = columns = shapes.getExtent(dims.back());
  if (isa<MatmulOp, FirstOp>(op))
    columns = shapes.getExtent(getDims(op->getResult(0).getType()).back());
}

/// `multiplyOne` of each row of `lhs` and column of `rhs`: of the row's
/// elements, and the column's first, which the others follow at a distance of
/// `columns`.
template <typename ElementT, typename FunctionT>
static std::vector<ElementT>
multiplyEach(const MatrixExtents &extents, ArrayRef<ElementT> lhs,
             ArrayRef<ElementT> rhs, FunctionT multiplyOne) {
  std::vector<ElementT> result;
  for (int64_t item = 0; item < extents.items; ++item)
    for (int64_t i = 0; i < extents.rows; ++i)
      for (int64_t j = 0; j < extents.columns; ++j)
        result.push_back(multiplyOne(
            lhs.slice((item * extents.rows + i) * extents.depth, extents.depth),
            rhs.data() + item * extents.depth * extents.columns + j));
  return result;
}

/// One element: the product of a row and a column.
template <typename NumberT>
static double multiplyOne(ArrayRef<double> row, const double *column,
                          int64_t stride) {
  double sum = 0.0;
  for (size_t begin = 0; begin < row.size(); begin += kLeaf) {
    NumberT leaf = 0;
    for (size_t k = begin; k < std::min<size_t>(begin + kLeaf, row.size()); ++k)
      leaf = std::fma(static_cast<NumberT>(row[k]),
                      static_cast<NumberT>(column[k * stride]), leaf);
    // The first is what it is, also where it is -0.0.
    sum = begin ? sum + static_cast<double>(leaf) : static_cast<double>(leaf);
  }
  return sum;
}

/// A number as a factor in bf16: 0 where that is denormal.
static double toFactor(double x) {
  double factor = roundTo(Format::BF16, roundTo(Format::F32, x));
  return std::fabs(factor) < 0x1p-126 ? std::copysign(0.0, factor) : factor;
}

/// One more product of factors, which is exact in f64. The sum is 0 where it is
/// below 2^-126 once it has 24 bits: 2^-126 - 2^-151 is a tie, and goes up.
static float addFactors(double x, double y, float sum) {
  float made = std::fma(static_cast<float>(x), static_cast<float>(y), sum);
  // Where that is near, the factors' 16 bits and the sum's fit in 53.
  double whole = x * y + static_cast<double>(sum);
  return std::fabs(whole) < 0x1p-126 - 0x1p-151 ? std::copysign(0.0F, made)
                                                : made;
}

/// What a factor in bf16 may be.
static Interval toFactor(Interval x) {
  Interval factor = roundTo(Format::BF16, roundTo(Format::F32, x));
  return {toFactor(factor.low), toFactor(factor.high), factor.nan};
}

template <typename ElementT>
static std::vector<ElementT> toFactors(ArrayRef<ElementT> elements) {
  std::vector<ElementT> factors;
  for (const ElementT &element : elements)
    factors.push_back(toFactor(element));
  return factors;
}

/// As `multiplyOne`, of pairs of factors: the second first.
static double multiplyPairs(ArrayRef<double> row, const double *column,
                            int64_t stride) {
  double sum = 0.0;
  for (size_t begin = 0; begin < row.size(); begin += kLeaf) {
    size_t end = std::min<size_t>(begin + kLeaf, row.size());
    float leaf = 0;
    for (size_t k = begin; k < end; k += 2) {
      bool isPair = k + 1 < end;
      leaf = addFactors(isPair ? row[k + 1] : 0.0,
                        isPair ? column[(k + 1) * stride] : 0.0, leaf);
      leaf = addFactors(row[k], column[k * stride], leaf);
    }
    sum = begin ? sum + static_cast<double>(leaf) : static_cast<double>(leaf);
  }
  return sum;
}

std::vector<double>
mlir::step::reference::multiply(const MatrixExtents &extents,
                                ArrayRef<double> lhs, ArrayRef<double> rhs,
                                Format compute, Chain chain) {
  std::vector<double> left, right;
  if (chain == Chain::Pairs) {
    lhs = left = toFactors(lhs);
    rhs = right = toFactors(rhs);
  }
  auto one = chain == Chain::Pairs ? multiplyPairs
             : chain == Chain::F64 ? multiplyOne<double>
                                   : multiplyOne<float>;
  return multiplyEach(extents, lhs, rhs, [&](auto row, const double *column) {
    return roundTo(compute, one(row, column, extents.columns));
  });
}

/// Of what is finite: from the least to the largest product of end points.
static Interval boundProduct(Interval x, Interval y) {
  double corners[] = {x.low * y.low, x.low * y.high, x.high * y.low,
                      x.high * y.high};
  return span(corners, 0.0, x.nan || y.nan);
}

/// A chain of n additions, each wrong by half a unit of a partial sum at most,
/// and by the least number where that is subnormal; and the last rounding.
static Interval boundOne(ArrayRef<Interval> row, const Interval *column,
                         int64_t stride, Chain chain) {
  Interval sum = {0.0, 0.0, false};
  double size = 0.0;
  for (auto [k, element] : llvm::enumerate(row)) {
    Interval x = element, y = column[int64_t(k) * stride];
    if (noNumbers({x, y}))
      return onlyNan;
    if (holdsInfinity(x) || holdsInfinity(y))
      return Interval::everything();
    Interval term = boundProduct(x, y);
    size += std::max(std::fabs(term.low), std::fabs(term.high));
    sum = {sum.low + term.low, sum.high + term.high, sum.nan || term.nan};
  }
  bool isDouble = chain == Chain::F64;
  double largest = isDouble ? 0x1p1022 : 0x1p126;
  // What may overflow on its way may end as anything.
  if (!(size < largest))
    return Interval::everything();
  double unit = isDouble ? 0x1p-52 : 0x1p-23;
  double least = isDouble                ? 0x1p-1074
                 : chain == Chain::Pairs ? 0x1p-126
                                         : 0x1p-149;
  double count = static_cast<double>(row.size()) + 2.0;
  double error = count * (unit * size + least);
  return {sum.low - error, sum.high + error, sum.nan};
}

std::vector<Interval>
mlir::step::reference::multiply(const MatrixExtents &extents,
                                ArrayRef<Interval> lhs, ArrayRef<Interval> rhs,
                                Format compute, Chain chain) {
  bool isRounded = (chain == Chain::F64) != (compute == Format::F64);
  std::vector<Interval> left, right;
  if (chain == Chain::Pairs) {
    lhs = left = toFactors(lhs);
    rhs = right = toFactors(rhs);
  }
  return multiplyEach(extents, lhs, rhs, [&](auto row, const Interval *column) {
    Interval sum = boundOne(row, column, extents.columns, chain);
    return isRounded ? roundTo(compute, sum) : sum;
  });
}

/// The same function of the same bits: another algorithm would have other
/// eigenvectors of clusters.
std::vector<double>
mlir::step::reference::decompose(const MatrixExtents &extents,
                                 ArrayRef<double> elements, Format compute) {
  std::vector<double> result(elements.begin(), elements.end());
  int64_t n = extents.rows;
  std::vector<double> vectors(n * n), work(n * stepc::kEigenWork);
  for (int64_t item = 0; item < extents.items; ++item)
    stepc::findEigenvectors(result.data() + item * n * n, n, vectors.data(),
                            work.data());
  for (double &element : result)
    element = roundTo(compute, element);
  return result;
}

std::vector<double>
mlir::step::reference::findValues(const MatrixExtents &extents,
                                  ArrayRef<double> elements, Format compute) {
  std::vector<double> matrices(elements.begin(), elements.end()), result;
  int64_t n = extents.rows;
  std::vector<double> vectors(n * n), work(n * stepc::kEigenWork);
  for (int64_t item = 0; item < extents.items; ++item) {
    stepc::findEigenvectors(matrices.data() + item * n * n, n, vectors.data(),
                            work.data());
    for (double value : ArrayRef(work).take_front(n))
      result.push_back(roundTo(compute, value));
  }
  return result;
}

std::vector<double> mlir::step::reference::makeMatrices(Operation *op,
                                                        const Shapes &shapes,
                                                        Format compute) {
  Shape shape = shapes.getShape(op->getResult(0).getType());
  int64_t columns = shape.back(), rows = shape[shape.size() - 2];
  std::vector<double> result;
  for (int64_t place = 0; place < getNumElements(shape); ++place) {
    int64_t row = place / columns % rows, column = place % columns;
    // Of an index one of them is 0 everywhere.
    bool isIndex = isa<IndexOp>(op);
    int64_t number = isIndex ? row + column : int64_t(row == column);
    result.push_back(roundTo(compute, static_cast<double>(number)));
  }
  return result;
}

std::vector<double> mlir::step::reference::orthonormalize(
    const MatrixExtents &extents, ArrayRef<double> elements, Format compute) {
  std::vector<double> matrices(elements.begin(), elements.end());
  std::vector<double> result(elements.size());
  std::vector<double> work(extents.rows * stepc::kOrthonormalWork);
  int64_t size = extents.rows * extents.columns;
  for (int64_t item = 0; item < extents.items; ++item)
    stepc::makeOrthonormal(matrices.data() + item * size, extents.rows,
                           extents.columns, result.data() + item * size,
                           work.data());
  for (double &element : result)
    element = roundTo(compute, element);
  return result;
}

/// Which column stands in each place.
static std::vector<int64_t> findPlaces(ArrayRef<double> keys) {
  std::vector<int64_t> places(keys.size());
  stepc::findOrder(keys.data(), keys.size(), places.data());
  return places;
}

std::vector<double>
mlir::step::reference::sortColumns(const MatrixExtents &extents,
                                   ArrayRef<double> elements,
                                   ArrayRef<double> keys) {
  std::vector<double> result;
  int64_t columns = extents.columns;
  for (int64_t item = 0; item < extents.items; ++item) {
    auto places = findPlaces(keys.slice(item * columns, columns));
    for (int64_t row = 0; row < extents.rows; ++row)
      for (int64_t place : places)
        result.push_back(
            elements[(item * extents.rows + row) * columns + place]);
  }
  return result;
}

/// The keys, where each is one number.
static std::optional<std::vector<double>> getNumbers(ArrayRef<Interval> keys) {
  std::vector<double> numbers;
  for (const Interval &key : keys) {
    if (key.nan || key.low != key.high)
      return std::nullopt;
    numbers.push_back(key.low);
  }
  return numbers;
}

std::vector<Interval>
mlir::step::reference::sortColumns(const MatrixExtents &extents,
                                   ArrayRef<Interval> elements,
                                   ArrayRef<Interval> keys) {
  std::vector<Interval> result;
  int64_t columns = extents.columns;
  for (int64_t item = 0; item < extents.items; ++item) {
    auto numbers = getNumbers(keys.slice(item * columns, columns));
    std::vector<int64_t> places;
    if (numbers)
      places = findPlaces(*numbers);
    for (int64_t row = 0; row < extents.rows; ++row) {
      ArrayRef<Interval> from =
          elements.slice((item * extents.rows + row) * columns, columns);
      if (numbers)
        for (int64_t place : places)
          result.push_back(from[place]);
      else
        result.insert(result.end(), columns,
                      std::accumulate(from.begin(), from.end(), from[0], hull));
    }
  }
  return result;
}

/// Orthonormal, but for roundings.
std::vector<Interval>
mlir::step::reference::decompose(const MatrixExtents &extents,
                                 ArrayRef<Interval> elements, Format) {
  int64_t size = extents.rows * extents.columns;
  std::vector<Interval> result;
  for (int64_t item = 0; item < extents.items; ++item) {
    bool nan = llvm::any_of(elements.slice(item * size, size),
                            [](const Interval &element) {
                              return element.nan || holdsInfinity(element);
                            });
    result.insert(result.end(), size,
                  Interval{-1.0 - 0x1p-20, 1.0 + 0x1p-20, nan});
  }
  return result;
}

std::vector<Interval>
mlir::step::reference::findValues(const MatrixExtents &extents,
                                  ArrayRef<Interval> elements, Format compute) {
  int64_t n = extents.rows;
  std::vector<Interval> result;
  for (int64_t item = 0; item < extents.items; ++item) {
    ArrayRef<Interval> own = elements.slice(item * n * n, n * n);
    Interval size = {0.0, 0.0, false};
    double squares = 0.0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) {
        const Interval &x = own[i * n + j];
        size.nan |= x.nan || holdsInfinity(x);
        double most = std::max(std::fabs(x.low), std::fabs(x.high));
        if (x.hasNumbers() && std::isfinite(most))
          squares += (i == j ? 1.0 : 2.0) * most * most;
      }
    size.high = std::sqrt(squares) * (1.0 + 0x1p-20);
    // Squares that underflow add less than this, and those that are too large
    // say nothing.
    size.high += 0x1p-500;
    size.low = -size.high;
    if (!std::isfinite(squares))
      size = Interval::everything();
    result.insert(result.end(), n, roundTo(compute, size));
  }
  return result;
}
