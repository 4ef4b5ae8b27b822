//===- OrthonormalTest.cpp - bases of columns, by their certificates ------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Q is right where its columns are orthonormal, R = Qt A is upper triangular
// with no negative number on its diagonal, and Q R is A. The bounds are those
// of Householder reflections, a small multiple of n roundings of a column's
// norm (N. Higham: Accuracy and Stability of Numerical Algorithms,
// theorem 19.4).
//
//===----------------------------------------------------------------------===//

#include "numerics/Orthonormal.h"
#include "numerics/Order.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

using namespace stepc;

namespace stepc_narrow {
void makeOrthonormal(double *matrix, int64_t rows, int64_t columns,
                     double *basis, double *work);
} // namespace stepc_narrow

namespace {

constexpr double kUnit = 0x1p-53;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Matrix {
  Matrix(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), elements(size_t(rows * columns)) {}

  double &at(int64_t i, int64_t j) { return elements[size_t(i * columns + j)]; }
  double at(int64_t i, int64_t j) const {
    return elements[size_t(i * columns + j)];
  }

  int64_t rows, columns;
  std::vector<double> elements;
};

Matrix make(int64_t rows, int64_t columns,
            const std::function<double(int64_t, int64_t)> &of) {
  Matrix matrix(rows, columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      matrix.at(i, j) = of(i, j);
  return matrix;
}

Matrix makeNormal(int64_t rows, int64_t columns, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  return make(rows, columns, [&](int64_t, int64_t) { return normal(random); });
}

/// What is in the memory that it works in does not matter.
Matrix decompose(Matrix a, double before = kNaN) {
  Matrix q(a.rows, a.columns);
  std::vector<double> work(size_t(a.rows * kOrthonormalWork), before);
  makeOrthonormal(a.elements.data(), a.rows, a.columns, q.elements.data(),
                  work.data());
  return q;
}

double multiplyColumns(const Matrix &x, int64_t i, const Matrix &y, int64_t j) {
  double sum = 0.0;
  for (int64_t k = 0; k < x.rows; ++k)
    sum += x.at(k, i) * y.at(k, j);
  return sum;
}

void checkOrthonormal(const Matrix &q) {
  double bound = 8.0 * double(q.rows) * kUnit;
  for (int64_t i = 0; i < q.columns; ++i)
    for (int64_t j = 0; j <= i; ++j)
      ASSERT_LE(std::fabs(multiplyColumns(q, i, q, j) - (i == j ? 1.0 : 0.0)),
                bound)
          << "columns " << i << " and " << j << " of " << q.columns;
}

/// Column j of A is that of Q R, and what is below R's diagonal is none.
void checkFactors(const Matrix &a, const Matrix &q) {
  for (int64_t j = 0; j < a.columns; ++j) {
    double norm = std::sqrt(multiplyColumns(a, j, a, j));
    double bound = 16.0 * double(a.rows) * kUnit * norm;
    std::vector<double> rest(size_t(a.rows));
    for (int64_t i = 0; i < a.rows; ++i)
      rest[size_t(i)] = a.at(i, j);
    for (int64_t k = 0; k <= j; ++k) {
      double r = multiplyColumns(q, k, a, j);
      for (int64_t i = 0; i < a.rows; ++i)
        rest[size_t(i)] -= r * q.at(i, k);
      if (k == j) {
        ASSERT_GE(r, -bound) << "diagonal " << j;
      }
    }
    for (double element : rest)
      ASSERT_LE(std::fabs(element), bound) << "column " << j;
    for (int64_t k = j + 1; k < a.columns; ++k)
      ASSERT_LE(std::fabs(multiplyColumns(q, k, a, j)), bound)
          << "R at " << k << ", " << j;
  }
}

void check(const Matrix &a) {
  Matrix q = decompose(a);
  checkOrthonormal(q);
  checkFactors(a, q);
}

TEST(Orthonormal, AnyMatrix) {
  for (int64_t columns : {1, 2, 3, 31, 32, 33, 63, 64, 65, 97, 130})
    for (int64_t more : {0, 1, 2, 3, 40})
      check(makeNormal(columns + more, columns, uint64_t(columns + more)));
}

TEST(Orthonormal, ColumnsOfAnySize) {
  Matrix a = makeNormal(50, 40, 3);
  Matrix q = decompose(a);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j)
      a.at(i, j) *= std::ldexp(1.0, int((j * 53) % 1900 - 950));
  EXPECT_EQ(q.elements, decompose(a).elements);
  for (double size : {1.0e308, 1.0e-290, 5.0e-324}) {
    Matrix b = make(9, 5, [&](int64_t i, int64_t j) {
      return size * (i == j ? 1.0 : double((i * 7 + j * 3) % 2));
    });
    checkOrthonormal(decompose(b));
  }
}

TEST(Orthonormal, ColumnsThatDepend) {
  for (int64_t n : {2, 5, 33, 70}) {
    // Of rank one, of half, of columns that stand twice, and with zeros.
    Matrix one = make(n, n, [](int64_t i, int64_t j) {
      return double(i + 1) * double(j + 1);
    });
    Matrix q = decompose(one);
    checkOrthonormal(q);
    checkFactors(one, q);
    Matrix factor = makeNormal(n, n / 2, 5), other = makeNormal(n / 2, n, 6);
    check(make(n, n, [&](int64_t i, int64_t j) {
      double sum = 0.0;
      for (int64_t k = 0; k < n / 2; ++k)
        sum += factor.at(i, k) * other.at(k, j);
      return sum;
    }));
    Matrix normal = makeNormal(n, n, 7);
    check(
        make(n, n, [&](int64_t i, int64_t j) { return normal.at(i, j / 2); }));
    check(make(n, n, [&](int64_t i, int64_t j) {
      return j % 2 ? normal.at(i, j) : 0.0;
    }));
  }
}

TEST(Orthonormal, WhatIsNextToUnderflow) {
  for (double size : {1.0e-150, 1.0e-160, 1.0e-300}) {
    Matrix a = make(4, 4, [](int64_t i, int64_t j) { return double(i == j); });
    a.at(3, 0) = size;
    a.at(2, 1) = -size;
    check(a);
  }
}

TEST(Orthonormal, TheSignsAreThoseOfR) {
  // Of minus the identity, and of a column that begins with a zero.
  Matrix q = decompose(
      make(40, 40, [](int64_t i, int64_t j) { return i == j ? -1.0 : 0.0; }));
  for (int64_t i = 0; i < 40; ++i)
    for (int64_t j = 0; j < 40; ++j)
      ASSERT_EQ(q.at(i, j), i == j ? -1.0 : 0.0);
  Matrix swapped = decompose(
      make(2, 2, [](int64_t i, int64_t j) { return double(i != j) * 2.0; }));
  EXPECT_EQ(swapped.elements, (std::vector<double>{0.0, 1.0, 1.0, 0.0}));
  Matrix zeros = decompose(Matrix(5, 3));
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t j = 0; j < 3; ++j)
      ASSERT_EQ(zeros.at(i, j), double(i == j));
}

TEST(Orthonormal, TheBitsAreTheMatrixs) {
  Matrix a = makeNormal(90, 71, 11);
  EXPECT_EQ(decompose(a).elements, decompose(a, 1.0e300).elements);
}

TEST(Orthonormal, TheBitsAreThoseOfNarrowVectors) {
  for (int64_t columns : {1, 7, 33, 70, 129}) {
    Matrix a = makeNormal(columns + 5, columns, 13), copy = a;
    Matrix q(a.rows, a.columns);
    std::vector<double> work(size_t(a.rows * kOrthonormalWork));
    stepc_narrow::makeOrthonormal(copy.elements.data(), a.rows, a.columns,
                                  q.elements.data(), work.data());
    EXPECT_EQ(q.elements, decompose(a).elements);
  }
}

TEST(Orthonormal, MoreColumnsThanRows) {
  for (double element : decompose(makeNormal(3, 40, 5)).elements)
    ASSERT_TRUE(std::isnan(element));
}

TEST(Orthonormal, NoNumbers) {
  double inf = std::numeric_limits<double>::infinity();
  for (double wrong : {kNaN, inf, -inf})
    for (int64_t place : {0, 7}) {
      Matrix a = makeNormal(8, 6, 5);
      a.at(place, 5) = wrong;
      for (double element : decompose(a).elements)
        ASSERT_TRUE(std::isnan(element));
    }
  decompose(Matrix(0, 0));
  decompose(Matrix(3, 0));
}

TEST(Order, LargestFirst) {
  double inf = std::numeric_limits<double>::infinity();
  std::vector<double> keys = {1.0, kNaN, -0.0, inf, 0.0, 1.0, -inf, kNaN, 2.0};
  std::vector<int64_t> places(keys.size());
  findOrder(keys.data(), int64_t(keys.size()), places.data());
  EXPECT_EQ(places, (std::vector<int64_t>{3, 8, 0, 5, 2, 4, 6, 1, 7}));
  std::vector<double> equal(300, 4.0);
  std::vector<int64_t> kept(300);
  findOrder(equal.data(), 300, kept.data());
  for (int64_t i = 0; i < 300; ++i)
    ASSERT_EQ(kept[size_t(i)], i);
}

} // namespace
