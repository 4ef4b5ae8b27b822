//===- SymmetricEigenTest.cpp - eigenvectors, by their certificates -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Q is right where it is orthogonal, A Q = Q L for a diagonal L, L descends,
// and signs are the canonical ones. The bounds are those of a backward stable
// algorithm, a small multiple of n roundings of the matrix's norm.
//
//===----------------------------------------------------------------------===//

#include "numerics/SymmetricEigen.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

using namespace stepc;

namespace stepc_narrow {
void findEigenvectors(double *matrix, int64_t n, double *vectors, double *work);
} // namespace stepc_narrow

namespace {

constexpr double kUnit = 0x1p-53;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Matrix {
  explicit Matrix(int64_t n) : n(n), elements(size_t(n * n)) {}

  double &at(int64_t i, int64_t j) { return elements[size_t(i * n + j)]; }
  double at(int64_t i, int64_t j) const { return elements[size_t(i * n + j)]; }

  int64_t n;
  std::vector<double> elements;
};

Matrix make(int64_t n, const std::function<double(int64_t, int64_t)> &of) {
  Matrix matrix(n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      matrix.at(i, j) = matrix.at(j, i) = of(i, j);
  return matrix;
}

/// What is in the memory that it works in does not matter.
Matrix decompose(Matrix matrix, double before = kNaN,
                 std::vector<double> *values = nullptr) {
  int64_t n = matrix.n;
  std::vector<double> vectors(size_t(n * n), before);
  std::vector<double> work(size_t(n * kEigenWork), before);
  findEigenvectors(matrix.elements.data(), n, vectors.data(), work.data());
  if (values)
    values->assign(work.begin(), work.begin() + n);
  return matrix;
}

std::vector<double> findValues(const Matrix &matrix) {
  std::vector<double> values;
  decompose(matrix, kNaN, &values);
  return values;
}

Matrix makeNormal(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  return make(n, [&](int64_t, int64_t) { return normal(random); });
}

/// Of `rank` columns, with the singular values' sizes `spread` apart.
Matrix makeGram(int64_t n, int64_t rank, double spread, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> factor(size_t(n * rank));
  for (size_t k = 0; k < factor.size(); ++k)
    factor[k] = normal(random) * std::pow(spread, double(k % size_t(rank)));
  return make(n, [&](int64_t i, int64_t j) {
    double sum = 0.0;
    for (int64_t k = 0; k < rank; ++k)
      sum += factor[size_t(i * rank + k)] * factor[size_t(j * rank + k)];
    return sum;
  });
}

double getNorm(const Matrix &matrix) {
  double largest = 0.0, sum = 0.0;
  for (double element : matrix.elements)
    largest = std::max(largest, std::fabs(element));
  if (largest == 0.0)
    return 0.0;
  for (double element : matrix.elements)
    sum += (element / largest) * (element / largest);
  return largest * std::sqrt(sum);
}

/// Column `j` of A Q, and the eigenvalue that it says.
double multiply(const Matrix &a, const Matrix &q, int64_t j,
                std::vector<double> &column) {
  double value = 0.0;
  for (int64_t i = 0; i < a.n; ++i) {
    double sum = 0.0;
    for (int64_t k = 0; k < a.n; ++k)
      sum += a.at(i, k) * q.at(k, j);
    column[size_t(i)] = sum;
    value += sum * q.at(i, j);
  }
  return value;
}

void checkResiduals(const Matrix &a, const Matrix &q) {
  double bound = 8.0 * double(a.n) * kUnit * getNorm(a);
  double before = std::numeric_limits<double>::infinity();
  std::vector<double> column(size_t(a.n));
  for (int64_t j = 0; j < a.n; ++j) {
    double value = multiply(a, q, j, column);
    for (int64_t i = 0; i < a.n; ++i)
      ASSERT_LE(std::fabs(column[size_t(i)] - value * q.at(i, j)), bound)
          << "element " << i << " of vector " << j << " of " << a.n;
    ASSERT_LE(value, before + bound) << "vector " << j;
    before = value;
  }
}

void checkOrthogonal(const Matrix &q) {
  for (int64_t i = 0; i < q.n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      double sum = 0.0;
      for (int64_t k = 0; k < q.n; ++k)
        sum += q.at(k, i) * q.at(k, j);
      ASSERT_LE(std::fabs(sum - (i == j ? 1.0 : 0.0)),
                8.0 * double(q.n) * kUnit)
          << "vectors " << i << " and " << j << " of " << q.n;
    }
}

/// In the order of the vectors, to the letter.
void checkValues(const Matrix &a, const Matrix &q,
                 const std::vector<double> &values) {
  double bound = 8.0 * double(a.n) * kUnit * getNorm(a);
  std::vector<double> column(size_t(a.n));
  for (int64_t j = 0; j < a.n; ++j) {
    ASSERT_LE(std::fabs(values[size_t(j)] - multiply(a, q, j, column)), bound)
        << "value " << j << " of " << a.n;
    ASSERT_LE(values[size_t(j)], values[size_t(std::max<int64_t>(j - 1, 0))]);
  }
}

void checkSigns(const Matrix &q) {
  for (int64_t j = 0; j < q.n; ++j) {
    int64_t largest = 0;
    for (int64_t i = 1; i < q.n; ++i)
      if (std::fabs(q.at(i, j)) > std::fabs(q.at(largest, j)))
        largest = i;
    ASSERT_GT(q.at(largest, j), 0.0) << "vector " << j;
  }
}

void check(const Matrix &a) {
  Matrix q = decompose(a);
  checkResiduals(a, q);
  checkOrthogonal(q);
  checkSigns(q);
  checkValues(a, q, findValues(a));
}

TEST(SymmetricEigen, AnyMatrix) {
  for (int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 64, 65, 100, 129})
    for (uint64_t seed = 0; seed < 3; ++seed)
      check(makeNormal(n, seed));
}

TEST(SymmetricEigen, GramMatrices) {
  for (int64_t n : {2, 5, 16, 33, 70}) {
    check(makeGram(n, 2 * n, 1.0, 1)); // of full rank
    check(makeGram(n, n / 2, 1.0, 2)); // of less
    check(makeGram(n, 1, 1.0, 3));     // of one
    check(makeGram(n, n, 0.5, 4));     // whose values fall off
    check(makeGram(n, n, 1.0e-3, 5));  // and to less than a rounding
  }
}

TEST(SymmetricEigen, Clusters) {
  check(make(6, [](int64_t i, int64_t j) { return i == j ? 2.5 : 0.0; }));
  check(make(7, [](int64_t, int64_t) { return 1.0; }));
  // Two values, each of several vectors; nothing beside the diagonal.
  check(make(
      8, [](int64_t i, int64_t j) { return i == j ? double(i % 2) : 0.0; }));
  // Pairs that agree to a rounding (J. H. Wilkinson's W21+).
  check(make(21, [](int64_t i, int64_t j) {
    return i == j ? std::fabs(10.0 - double(i)) : double(i - j == 1);
  }));
}

TEST(SymmetricEigen, Zeros) {
  for (int64_t n : {1, 2, 5, 40}) {
    Matrix q = decompose(Matrix(n));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        ASSERT_EQ(q.at(i, j), double(i == j));
  }
  decompose(Matrix(0));
}

TEST(SymmetricEigen, KnownValues) {
  // 2 - 2 cos(k pi / (n + 1)), of second differences.
  int64_t n = 40;
  std::vector<double> values = findValues(make(n, [](int64_t i, int64_t j) {
    return i == j ? 2.0 : i - j == 1 ? -1.0 : 0.0;
  }));
  for (int64_t k = 0; k < n; ++k)
    EXPECT_NEAR(values[size_t(k)],
                2.0 - 2.0 * std::cos(double(n - k) * 3.14159265358979323846 /
                                     double(n + 1)),
                1e-14);
  // In order, exact where nothing is beside the diagonal, as large as they are.
  EXPECT_EQ(
      findValues(make(4,
                      [](int64_t i, int64_t j) {
                        const double own[] = {0.5, -3.0, 7.0, 0.0};
                        return i == j ? own[i] * 0x1p1000 : 0.0;
                      })),
      (std::vector<double>{7.0 * 0x1p1000, 0x1p999, 0.0, -3.0 * 0x1p1000}));
}

TEST(SymmetricEigen, SizesOfNumbers) {
  for (double size : {1.0e300, 1.0e150, 1.0e-150, 1.0e-300, 5.0e-324}) {
    Matrix a = makeNormal(9, 7);
    for (double &element : a.elements)
      element = std::rint(element * 8.0) / 8.0;
    Matrix scaled = a;
    for (double &element : scaled.elements)
      element *= 8.0 * size; // exact in denormals
    Matrix q = decompose(scaled);
    checkOrthogonal(q);
    checkResiduals(a, q);
  }
  // From the largest to the smallest in one.
  check(make(12, [](int64_t i, int64_t j) {
    return std::pow(10.0, -double(i + j)) * (i == j ? 1.0 : 0.3);
  }));
  check(make(12, [](int64_t i, int64_t j) {
    return std::pow(10.0, double(i + j - 22)) * (i == j ? 1.0 : 0.3);
  }));
}

/// Squares of what is beside the diagonal lose bits, or all of themselves.
TEST(SymmetricEigen, SquaresNextToUnderflow) {
  for (int64_t n : {3, 4, 9, 20})
    for (double tiny : {0x1p-440, 0x1p-455, 1.0e-150, 1.0e-154, 1.0e-160,
                        1.0e-161, 1.0e-162, 1.0e-200, 0x1p-1074})
      for (int64_t column = 0; column + 2 < n; ++column)
        for (double diagonal : {1.0, 0.75}) {
          Matrix corner = make(n, [&](int64_t i, int64_t j) {
            return i == j ? (i == 1 ? diagonal : 1.0) : 0.0;
          });
          Matrix below = corner;
          corner.at(n - 1, column) = corner.at(column, n - 1) = tiny;
          check(corner);
          for (int64_t i = column + 1; i < n; ++i)
            below.at(i, column) = below.at(column, i) = tiny;
          check(below);
        }
}

TEST(SymmetricEigen, TheLowerHalf) {
  Matrix a = makeNormal(13, 3), b = a;
  for (int64_t i = 0; i < 13; ++i)
    for (int64_t j = i + 1; j < 13; ++j)
      b.at(i, j) = kNaN;
  EXPECT_EQ(decompose(a).elements, decompose(b).elements);
}

TEST(SymmetricEigen, TheBitsAreTheMatrixs) {
  Matrix a = makeGram(50, 30, 0.9, 11);
  Matrix q = decompose(a), again = decompose(a, 1.0e300);
  ASSERT_EQ(0, std::memcmp(q.elements.data(), again.elements.data(),
                           q.elements.size() * sizeof(double)));
  // A power of two is one of the eigenvalues alone.
  Matrix larger = a;
  for (double &element : larger.elements)
    element *= 0x1p40;
  EXPECT_EQ(q.elements, decompose(larger).elements);
  std::vector<double> values = findValues(a);
  for (double &value : values)
    value *= 0x1p40;
  EXPECT_EQ(values, findValues(larger));
}

TEST(SymmetricEigen, TheBitsAreThoseOfNarrowVectors) {
  for (int64_t n : {2, 7, 33, 100}) {
    Matrix a = makeNormal(n, 13), copy = a;
    std::vector<double> vectors(size_t(n * n)), work(size_t(n * kEigenWork));
    stepc_narrow::findEigenvectors(copy.elements.data(), n, vectors.data(),
                                   work.data());
    EXPECT_EQ(copy.elements, decompose(a).elements);
  }
}

TEST(SymmetricEigen, NoNumbers) {
  double inf = std::numeric_limits<double>::infinity();
  for (double wrong : {kNaN, inf, -inf})
    for (int64_t n : {1, 2, 3, 20})
      for (int64_t place : {int64_t(0), n - 1}) {
        Matrix a = makeNormal(n, 5);
        a.at(n - 1, place) = wrong;
        for (double element : decompose(a).elements)
          ASSERT_TRUE(std::isnan(element));
        for (double value : findValues(a))
          ASSERT_TRUE(std::isnan(value));
      }
}

TEST(SymmetricEigen, ATieIsTheFirsts) {
  // Eigenvectors (1, 1) and (1, -1), divided by the root of 2.
  Matrix q = decompose(
      make(2, [](int64_t i, int64_t j) { return i == j ? 2.0 : 1.0; }));
  EXPECT_GT(q.at(0, 0), 0.0);
  EXPECT_GT(q.at(0, 1), 0.0);
  EXPECT_LT(q.at(1, 1), 0.0);
}

} // namespace
