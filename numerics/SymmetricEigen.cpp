//===- SymmetricEigen.cpp - eigenvectors of symmetric matrices ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Householder reflections make the matrix A tridiagonal, T = Qt A Q; QL with
// implicit shifts makes T diagonal, by rotations whose product is G; the
// eigenvectors are the columns of Q G. See J. H. Wilkinson, C. Reinsch: Linear
// Algebra (Handbook for Automatic Computation II), 1971, contributions II/2 and
// II/4; B. N. Parlett: The Symmetric Eigenvalue Problem, 1980, chapter 8.
//
// All loops over elements run along rows, as vectors do. Sums are made in eight
// chains, by index mod 8, so that they do, too, with one order whatever the
// processor. Nothing is contracted (-ffp-contract=off).
//
//===----------------------------------------------------------------------===//

#include "numerics/SymmetricEigen.h"

#include "numerics/Wide.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace stepc;

namespace {

constexpr int64_t kChains = 8;
/// Of QL, for one eigenvalue: it takes two or three.
constexpr int64_t kMostIterations = 64;
/// Columns to which waiting rotations are applied together: they stay in the
/// second cache.
constexpr int64_t kColumns = 64;

//===----------------------------------------------------------------------===//
// Loops along rows
//===----------------------------------------------------------------------===//

STEPC_WIDE double addProducts(const double *x, const double *y, int64_t count) {
  double chains[kChains] = {};
  int64_t i = 0;
  for (; i + kChains <= count; i += kChains)
    for (int64_t k = 0; k < kChains; ++k)
      chains[k] += x[i + k] * y[i + k];
  for (int64_t k = 0; i < count; ++i, ++k)
    chains[k] += x[i] * y[i];
  for (int64_t width = kChains / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k)
      chains[k] += chains[k + width];
  return chains[0];
}

/// to += factor * x
STEPC_WIDE void addMultiple(double *__restrict to, double factor,
                            const double *__restrict x, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += factor * x[i];
}

/// to -= a * x + b * y
STEPC_WIDE void subtractMultiples(double *__restrict to, double a,
                                  const double *__restrict x, double b,
                                  const double *__restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    to[i] -= a * x[i] + b * y[i];
}

/// Rotates two rows.
STEPC_WIDE void rotate(double *__restrict x, double *__restrict y, double c,
                       double s, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    double low = x[i], high = y[i];
    y[i] = s * low + c * high;
    x[i] = c * low - s * high;
  }
}

/// The length of (x, y), without overflow on the way.
double getLength(double x, double y) {
  double large = std::max(std::fabs(x), std::fabs(y));
  double small = std::min(std::fabs(x), std::fabs(y));
  if (large == 0.0)
    return 0.0;
  double ratio = small / large;
  return large * std::sqrt(1.0 + ratio * ratio);
}

//===----------------------------------------------------------------------===//
// The decomposition
//===----------------------------------------------------------------------===//

/// State: `a` is the matrix; once it is tridiagonal the reflection k, v with
/// v(k + 1) != 0, stands above the diagonal of its row k, and 2 / |v|^2 on it.
/// `vectors` has the rows of (Q G)t. The diagonal is in `d`, what is beside it
/// in `e`: e(i) between d(i) and d(i + 1). `rotations` wait to be applied to
/// rows of `vectors`.
class SymmetricEigen {
public:
  SymmetricEigen(double *matrix, int64_t n, double *vectors, double *work)
      : n(n), a(matrix), vectors(vectors), d(work), e(d + n), scratch(e + n),
        rotations(scratch + n) {}

  void run();

private:
  bool scale();
  void tridiagonalize();
  void reflect(int64_t k);
  void formVectors();
  bool diagonalize();
  int64_t findEnd(int64_t begin) const;
  void sweep(int64_t begin, int64_t end);
  void addRotation(int64_t row, double c, double s);
  void applyRotations();
  void storeSorted();
  void storeNothing();

  double *getRow(double *of, int64_t row) const { return of + row * n; }

  const int64_t n;
  double *const a, *const vectors;
  double *const d, *const e, *const scratch, *const rotations;
  /// What is so small beside the matrix is a rounding of it.
  double negligible = 0.0;
  /// The matrix was this power of two larger.
  int exponent = 0;
  /// Sweeps that wait: of each the rows of its first and last rotation.
  int64_t numSweeps = 0, firstRow[kEigenSweeps], lastRow[kEigenSweeps];
  int64_t numRotations = 0;
};

} // namespace

/// To elements of at most 1, by a power of two; false where one is infinite or
/// NaN.
bool SymmetricEigen::scale() {
  double largest = 0.0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      double size = std::fabs(getRow(a, i)[j]);
      if (!(size <= std::numeric_limits<double>::max()))
        return false;
      largest = std::max(largest, size);
    }
  if (largest == 0.0)
    return true;
  std::frexp(largest, &exponent);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      getRow(a, i)[j] = std::ldexp(getRow(a, i)[j], -exponent);
  return true;
}

/// Makes column k zero but for one element below the diagonal: with x that
/// column, v = x +- |x| e1, and A <- H A H, H = 1 - b v vt, b = 2 / |v|^2:
///
///   p = b A v, w = p - (b / 2) (pt v) v, A <- A - v wt - w vt
///
/// Of A what is below the diagonal is there. v takes the place of row k above
/// it, b that of the diagonal's element, which is in `d`. Squares that are next
/// to underflow are zero: of a matrix whose largest element is 1/2 or more they
/// are far below what is negligible, and b would be infinite, or of few bits.
void SymmetricEigen::reflect(int64_t k) {
  int64_t size = n - k - 1;
  double *v = getRow(a, k) + k + 1, *w = scratch;
  for (int64_t i = 0; i < size; ++i)
    v[i] = getRow(a, k + 1 + i)[k];
  double below = addProducts(v + 1, v + 1, size - 1);
  double length = std::sqrt(v[0] * v[0] + below);
  double factor = 0.0;
  e[k] = v[0];
  if (below > 0x1p-900) {
    e[k] = v[0] > 0.0 ? -length : length;
    v[0] -= e[k];
    factor = 2.0 / (v[0] * v[0] + below);
  }
  d[k] = getRow(a, k)[k];
  getRow(a, k)[k] = factor;
  if (factor == 0.0)
    return;
  std::fill(w, w + size, 0.0);
  for (int64_t i = 0; i < size; ++i) {
    const double *row = getRow(a, k + 1 + i) + k + 1;
    w[i] += addProducts(row, v, i) + row[i] * v[i];
    addMultiple(w, v[i], row, i);
  }
  for (int64_t i = 0; i < size; ++i)
    w[i] *= factor;
  addMultiple(w, -0.5 * factor * addProducts(w, v, size), v, size);
  for (int64_t i = 0; i < size; ++i)
    subtractMultiples(getRow(a, k + 1 + i) + k + 1, v[i], w, w[i], v, i + 1);
}

void SymmetricEigen::tridiagonalize() {
  for (int64_t k = 0; k + 1 < n; ++k)
    reflect(k);
  d[n - 1] = getRow(a, n - 1)[n - 1];
  e[n - 1] = 0.0;
  double largest = 0.0;
  for (int64_t i = 0; i < n; ++i)
    largest = std::max({largest, std::fabs(d[i]), std::fabs(e[i])});
  negligible = largest * 0x1p-57;
}

/// Qt, from the last reflection to the first: of each what is below and to the
/// right of (k + 1, k + 1).
void SymmetricEigen::formVectors() {
  std::fill(vectors, vectors + n * n, 0.0);
  for (int64_t i = 0; i < n; ++i)
    getRow(vectors, i)[i] = 1.0;
  for (int64_t k = n - 2; k >= 0; --k) {
    int64_t size = n - k - 1;
    const double *v = getRow(a, k) + k + 1;
    double factor = getRow(a, k)[k];
    if (factor == 0.0)
      continue;
    // Rows of Qt are columns of Q, so Q <- H Q changes each by a multiple of v.
    for (int64_t j = k + 1; j < n; ++j) {
      double *row = getRow(vectors, j) + k + 1;
      addMultiple(row, -factor * addProducts(row, v, size), v, size);
    }
  }
}

/// The first row from `begin` on that nothing joins with the next.
int64_t SymmetricEigen::findEnd(int64_t begin) const {
  for (int64_t i = begin; i + 1 < n; ++i) {
    double size = std::fabs(e[i]);
    double beside = std::fabs(d[i]) + std::fabs(d[i + 1]);
    if (size <= 0x1p-53 * beside || size <= negligible)
      return i;
  }
  return n - 1;
}

/// One rotation of rows `row` and `row + 1`, of the sweep at hand.
void SymmetricEigen::addRotation(int64_t row, double c, double s) {
  if (firstRow[numSweeps] < 0)
    firstRow[numSweeps] = row;
  lastRow[numSweeps] = row;
  rotations[2 * numRotations] = c;
  rotations[2 * numRotations + 1] = s;
  ++numRotations;
}

/// Columns by columns: an element meets its rotations in their order in any
/// case.
void SymmetricEigen::applyRotations() {
  for (int64_t column = 0; column < n; column += kColumns) {
    int64_t count = std::min(kColumns, n - column);
    const double *next = rotations;
    for (int64_t sweep = 0; sweep < numSweeps; ++sweep)
      for (int64_t row = firstRow[sweep]; row >= lastRow[sweep];
           --row, next += 2)
        rotate(getRow(vectors, row) + column, getRow(vectors, row + 1) + column,
               next[0], next[1], count);
  }
  numRotations = numSweeps = 0;
}

/// A step of QL on the rows from `begin` to `end`, with Wilkinson's shift.
void SymmetricEigen::sweep(int64_t begin, int64_t end) {
  double g = (d[begin + 1] - d[begin]) / (2.0 * e[begin]);
  double r = getLength(g, 1.0);
  g = d[end] - d[begin] + e[begin] / (g + std::copysign(r, g));
  double s = 1.0, c = 1.0, p = 0.0;
  firstRow[numSweeps] = -1;
  int64_t row = end - 1;
  for (; row >= begin; --row) {
    double f = s * e[row], b = c * e[row];
    r = getLength(f, g);
    e[row + 1] = r;
    if (r == 0.0) {
      // The matrix has come apart there.
      d[row + 1] -= p;
      e[end] = 0.0;
      break;
    }
    s = f / r;
    c = g / r;
    g = d[row + 1] - p;
    r = (d[row] - g) * s + 2.0 * c * b;
    p = s * r;
    d[row + 1] = g + p;
    g = c * r - b;
    addRotation(row, c, s);
  }
  if (firstRow[numSweeps] >= 0 && ++numSweeps == kEigenSweeps)
    applyRotations();
  if (row >= begin)
    return;
  d[begin] -= p;
  e[begin] = g;
  e[end] = 0.0;
}

bool SymmetricEigen::diagonalize() {
  for (int64_t begin = 0; begin < n; ++begin) {
    int64_t iterations = 0;
    for (int64_t end; (end = findEnd(begin)) != begin; sweep(begin, end))
      if (++iterations > kMostIterations)
        return false;
  }
  applyRotations();
  return true;
}

/// From rows of `vectors` to columns of the matrix; the values into `d`.
void SymmetricEigen::storeSorted() {
  double *order = scratch; // of rows, as doubles
  for (int64_t i = 0; i < n; ++i)
    order[i] = static_cast<double>(i);
  // Not std::stable_sort: it takes memory, and a step takes none.
  std::sort(order, order + n, [&](double i, double j) {
    double lhs = d[int64_t(i)], rhs = d[int64_t(j)];
    return lhs != rhs ? lhs > rhs : i < j;
  });
  for (int64_t column = 0; column < n; ++column) {
    const double *vector = getRow(vectors, int64_t(order[column]));
    int64_t largest = 0;
    for (int64_t i = 1; i < n; ++i)
      if (std::fabs(vector[i]) > std::fabs(vector[largest]))
        largest = i;
    // e is not used any more.
    e[column] = vector[largest] < 0.0 ? -1.0 : 1.0;
  }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t column = 0; column < n; ++column)
      getRow(a, i)[column] =
          e[column] * getRow(vectors, int64_t(order[column]))[i];
  for (int64_t column = 0; column < n; ++column)
    e[column] = std::ldexp(d[int64_t(order[column])], exponent);
  std::copy(e, e + n, d);
}

void SymmetricEigen::storeNothing() {
  std::fill(a, a + n * n, std::numeric_limits<double>::quiet_NaN());
  std::fill(d, d + n, std::numeric_limits<double>::quiet_NaN());
}

void SymmetricEigen::run() {
  if (n == 0)
    return;
  bool ends = scale();
  if (ends) {
    tridiagonalize();
    formVectors();
    ends = diagonalize();
  }
  if (ends)
    storeSorted();
  else
    storeNothing();
}

void stepc::findEigenvectors(double *matrix, int64_t n, double *vectors,
                             double *work) {
  SymmetricEigen(matrix, n, vectors, work).run();
}
