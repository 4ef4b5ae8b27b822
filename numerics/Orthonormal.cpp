//===- Orthonormal.cpp - orthonormal bases of columns ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Column k of the matrix, as the reflections before it have left it, becomes
// zero below row k by H = I - tau v vt, v[k] = 1. The reflections of a panel of
// 32 columns are applied to the columns behind it together: H_0 H_1 ... =
// I - V T Vt, T upper triangular (R. Schreiber, C. Van Loan: A
// storage-efficient WY representation for products of Householder
// transformations, 1989). The basis is their product with the first columns of
// the identity, from the last panel to the first, with the signs of R's
// diagonal.
//
// A matrix of 3 columns, panels of 2: the first has v_0 and v_1, is applied to
// column 2, and then v_2 is made; the basis is (I - V T Vt) H_2 I.
//
//===----------------------------------------------------------------------===//

#include "numerics/Orthonormal.h"

#include "numerics/Wide.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace stepc;

/// Columns of a matrix that stay in the first cache while a panel's rows are
/// gone through.
static constexpr int64_t kChunk = 64;
/// A sum of squares below it is zero: columns have elements of 1/2 and more
/// before the first reflection, so it is far below what is negligible.
static constexpr double kNegligible = 0x1p-900;

namespace {
/// Rows of `stride` doubles.
struct Rows {
  double *data;
  int64_t stride;

  double *operator[](int64_t row) const { return data + row * stride; }
};

/// Reflections of a panel: V, whose `rows` rows have `width` elements each.
struct Panel {
  const double *v;
  int64_t rows, width;

  const double *operator[](int64_t row) const { return v + row * width; }
};
} // namespace

/// product[j] += sum of v[i][j] * b[i] over i, of `columns` columns: in the
/// order of i, whatever the width of vectors.
[[gnu::always_inline]] static inline void addProducts(const Panel &panel,
                                                      const Rows &b,
                                                      int64_t columns,
                                                      const Rows &product) {
  int64_t i = 0;
  for (; i + 4 <= panel.rows; i += 4) {
    const double *b0 = b[i], *b1 = b[i + 1], *b2 = b[i + 2], *b3 = b[i + 3];
    for (int64_t j = 0; j < panel.width; ++j) {
      double v0 = panel[i][j], v1 = panel[i + 1][j], v2 = panel[i + 2][j],
             v3 = panel[i + 3][j], *sums = product[j];
#pragma GCC ivdep
      for (int64_t c = 0; c < columns; ++c)
        sums[c] =
            (((sums[c] + v0 * b0[c]) + v1 * b1[c]) + v2 * b2[c]) + v3 * b3[c];
    }
  }
  for (; i < panel.rows; ++i)
    for (int64_t j = 0; j < panel.width; ++j) {
      double v = panel[i][j], *sums = product[j];
      const double *row = b[i];
#pragma GCC ivdep
      for (int64_t c = 0; c < columns; ++c)
        sums[c] += v * row[c];
    }
}

/// b[i] -= sum of v[i][j] * factor[j] over j, in the order of j.
[[gnu::always_inline]] static inline void subtractProducts(const Panel &panel,
                                                           const Rows &factor,
                                                           int64_t columns,
                                                           const Rows &b) {
  for (int64_t i = 0; i < panel.rows; ++i) {
    const double *v = panel[i];
    double *row = b[i];
    int64_t j = 0;
    for (; j + 4 <= panel.width; j += 4) {
      const double *f0 = factor[j], *f1 = factor[j + 1], *f2 = factor[j + 2],
                   *f3 = factor[j + 3];
      double v0 = v[j], v1 = v[j + 1], v2 = v[j + 2], v3 = v[j + 3];
#pragma GCC ivdep
      for (int64_t c = 0; c < columns; ++c)
        row[c] =
            (((row[c] - v0 * f0[c]) - v1 * f1[c]) - v2 * f2[c]) - v3 * f3[c];
    }
    for (; j < panel.width; ++j) {
      double one = v[j];
      const double *f = factor[j];
#pragma GCC ivdep
      for (int64_t c = 0; c < columns; ++c)
        row[c] -= one * f[c];
    }
  }
}

/// factor <- T product, or Tt product; T is upper triangular, of the panel's
/// width.
[[gnu::always_inline]] static inline void
multiplyTriangle(const double *t, int64_t width, bool isTransposed,
                 const Rows &product, int64_t columns, const Rows &factor) {
  for (int64_t j = 0; j < width; ++j) {
    double *row = factor[j];
    std::fill(row, row + columns, 0.0);
    int64_t begin = isTransposed ? 0 : j, end = isTransposed ? j + 1 : width;
    for (int64_t l = begin; l < end; ++l) {
      double one = isTransposed ? t[l * width + j] : t[j * width + l];
      const double *from = product[l];
      for (int64_t c = 0; c < columns; ++c)
        row[c] += one * from[c];
    }
  }
}

/// b <- (I - V T Vt) b, or (I - V Tt Vt) b.
STEPC_WIDE static void applyPanel(const Panel &panel, const double *t,
                                  bool isTransposed, const Rows &b,
                                  int64_t columns) {
  alignas(64) double product[kReflections * kChunk];
  alignas(64) double factor[kReflections * kChunk];
  for (int64_t begin = 0; begin < columns; begin += kChunk) {
    int64_t width = std::min(kChunk, columns - begin);
    Rows own{b.data + begin, b.stride}, sums{product, kChunk};
    std::fill(product, product + panel.width * kChunk, 0.0);
    addProducts(panel, own, width, sums);
    multiplyTriangle(t, panel.width, isTransposed, sums, width,
                     {factor, kChunk});
    subtractProducts(panel, {factor, kChunk}, width, own);
  }
}

namespace {
class Orthonormal {
public:
  Orthonormal(double *matrix, int64_t rows, int64_t columns, double *basis,
              double *work)
      : a{matrix, columns}, q{basis, columns}, rows(rows), columns(columns),
        v(work), triangles(v + rows * kReflections),
        signs(triangles + columns * kReflections), scratch(signs + columns) {}

  void run();

private:
  bool scaleColumns();
  void readPanel(int64_t k, int64_t width, bool isReduced);
  void reduce(int64_t k, int64_t width);
  double reflect(int64_t row, int64_t j, int64_t width, double &tau);
  void makeTriangle(int64_t numRows, int64_t width, const double *taus,
                    double *t) const;
  void makeBasis();

  Rows a, q;
  int64_t rows, columns;
  /// The panel that is worked on; T of each panel; of each column the sign of
  /// R's diagonal, and two numbers.
  double *v, *triangles, *signs, *scratch;
};
} // namespace

/// Each by a power of two, to elements of 1/2 at least and below 1. Says
/// whether there are numbers only.
bool Orthonormal::scaleColumns() {
  double *largest = scratch, *more = scratch + columns;
  std::fill(largest, largest + columns, 0.0);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      double size = std::fabs(a[i][j]);
      if (!std::isfinite(size))
        return false;
      largest[j] = std::max(largest[j], size);
    }
  for (int64_t j = 0; j < columns; ++j) {
    int exponent = 0;
    std::frexp(largest[j], &exponent);
    // In two parts: of what is next to zero, one is beyond what there is.
    largest[j] = std::ldexp(1.0, -exponent / 2);
    more[j] = std::ldexp(1.0, -exponent - -exponent / 2);
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      a[i][j] = a[i][j] * largest[j] * more[j];
  return true;
}

/// Rows k and more of columns [k, k + width); or the reflections that they have
/// become, with what is not stored.
void Orthonormal::readPanel(int64_t k, int64_t width, bool isReduced) {
  for (int64_t i = k; i < rows; ++i) {
    double *row = v + (i - k) * width;
    std::copy(a[i] + k, a[i] + k + width, row);
    if (!isReduced || i - k >= width)
      continue;
    row[i - k] = 1.0;
    std::fill(row + (i - k) + 1, row + width, 0.0);
  }
}

/// Column `j` of the panel, whose row `j` is row `row` of the matrix, becomes
/// v below its diagonal. Returns what R has there.
double Orthonormal::reflect(int64_t row, int64_t j, int64_t width,
                            double &tau) {
  double *top = v + j * width, below = 0.0;
  int64_t last = rows - (row - j);
  for (int64_t i = j + 1; i < last; ++i)
    below += v[i * width + j] * v[i * width + j];
  double diagonal = top[j];
  tau = 0.0;
  if (below <= kNegligible) {
    for (int64_t i = j + 1; i < last; ++i)
      v[i * width + j] = 0.0;
    return diagonal;
  }
  double length = std::sqrt(diagonal * diagonal + below);
  double made = diagonal > 0.0 ? -length : length;
  double first = diagonal - made;
  tau = -first / made;
  for (int64_t i = j + 1; i < last; ++i)
    v[i * width + j] /= first;
  // The columns of the panel behind it.
  double sums[kReflections];
  std::copy(top + j + 1, top + width, sums + j + 1);
  for (int64_t i = j + 1; i < last; ++i)
    for (int64_t c = j + 1; c < width; ++c)
      sums[c] += v[i * width + j] * v[i * width + c];
  for (int64_t c = j + 1; c < width; ++c) {
    sums[c] *= tau;
    top[c] -= sums[c];
  }
  for (int64_t i = j + 1; i < last; ++i)
    for (int64_t c = j + 1; c < width; ++c)
      v[i * width + c] -= v[i * width + j] * sums[c];
  return made;
}

/// Column j of T is -tau_j T (Vt v_j) above its diagonal, and tau_j on it.
void Orthonormal::makeTriangle(int64_t numRows, int64_t width,
                               const double *taus, double *t) const {
  std::fill(t, t + width * width, 0.0);
  for (int64_t j = 0; j < width; ++j) {
    double products[kReflections] = {};
    for (int64_t i = j; i < numRows; ++i)
      for (int64_t l = 0; l < j; ++l)
        products[l] += v[i * width + l] * v[i * width + j];
    for (int64_t l = 0; l < j; ++l) {
      double sum = 0.0;
      for (int64_t m = l; m < j; ++m)
        sum += t[l * width + m] * products[m];
      t[l * width + j] = -taus[j] * sum;
    }
    t[j * width + j] = taus[j];
  }
}

/// The panel of columns [k, k + width), and what it does to those behind it.
void Orthonormal::reduce(int64_t k, int64_t width) {
  double taus[kReflections];
  readPanel(k, width, /*isReduced=*/false);
  for (int64_t j = 0; j < width; ++j)
    signs[k + j] = reflect(k + j, j, width, taus[j]) < 0.0 ? -1.0 : 1.0;
  for (int64_t i = k; i < rows; ++i)
    std::copy(v + (i - k) * width, v + (i - k + 1) * width, a[i] + k);
  readPanel(k, width, /*isReduced=*/true);
  double *t = triangles + k * kReflections;
  makeTriangle(rows - k, width, taus, t);
  int64_t behind = columns - k - width;
  if (behind > 0)
    applyPanel({v, rows - k, width}, t, /*isTransposed=*/true,
               {a[k] + k + width, columns}, behind);
}

void Orthonormal::makeBasis() {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      q[i][j] = i == j ? 1.0 : 0.0;
  for (int64_t k = (columns - 1) / kReflections * kReflections; k >= 0;
       k -= kReflections) {
    int64_t width = std::min(kReflections, columns - k);
    readPanel(k, width, /*isReduced=*/true);
    applyPanel({v, rows - k, width}, triangles + k * kReflections,
               /*isTransposed=*/false, {q[k] + k, columns}, columns - k);
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      q[i][j] *= signs[j];
}

void Orthonormal::run() {
  if (!scaleColumns()) {
    std::fill(q.data, q.data + rows * columns,
              std::numeric_limits<double>::quiet_NaN());
    return;
  }
  for (int64_t k = 0; k < columns; k += kReflections)
    reduce(k, std::min(kReflections, columns - k));
  makeBasis();
}

void stepc::makeOrthonormal(double *matrix, int64_t rows, int64_t columns,
                            double *basis, double *work) {
  if (columns > rows)
    std::fill(basis, basis + rows * columns,
              std::numeric_limits<double>::quiet_NaN());
  else if (columns > 0)
    Orthonormal(matrix, rows, columns, basis, work).run();
}
