//===- TileUnitTest.cpp - tiles and folds by themselves -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/OrderedInteger.h"
#include "core/Tiles.h"
#include "core/TreeFold.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <random>

using namespace stepc;

namespace {

/// Neighbours pairwise, level by level, as docs/statistics.md says it.
double foldLevels(std::vector<double> leaves, bool maximum) {
  while (leaves.size() > 1) {
    std::vector<double> next;
    for (size_t i = 0; i + 1 < leaves.size(); i += 2)
      next.push_back(maximum ? std::max(leaves[i], leaves[i + 1])
                             : leaves[i] + leaves[i + 1]);
    if (leaves.size() % 2)
      next.push_back(leaves.back());
    leaves = next;
  }
  return leaves.empty() ? 0.0 : leaves[0];
}

TEST(TreeFold, anyNumberOfValues) {
  std::mt19937 random(9);
  std::normal_distribution<double> normal;
  TreeFold sum(false), maximum(true);
  for (size_t size = 0; size < 3000; size += 1 + size / 20) {
    sum.clear();
    maximum.clear();
    std::vector<double> leaves;
    double largest = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < size; ++i) {
      double value = normal(random);
      if (i % 64 == 0)
        leaves.push_back(0.0);
      leaves.back() += value;
      largest = std::max(largest, value);
      sum.add(value);
      maximum.add(value);
    }
    EXPECT_EQ(foldLevels(leaves, false), sum.finish()) << size;
    EXPECT_EQ(largest, maximum.finish()) << size;
  }
  // A sum begins with +0.0.
  sum.clear();
  sum.add(-0.0);
  EXPECT_FALSE(std::signbit(sum.finish()));
}

TEST(TreeFold, nan) {
  for (size_t at : {0, 63, 64, 200}) {
    TreeFold maximum(true);
    for (size_t i = 0; i < 300; ++i)
      maximum.add(i == at ? std::nan("") : double(i));
    EXPECT_TRUE(std::isnan(maximum.finish())) << at;
  }
}

TEST(OrderedInteger, order) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const double ascending[] = {-inf, -1e300, -2.0, -1.0, -1e-310, -0.0,
                              0.0,  1e-310, 1.0,  2.0,  1e300,   inf};
  int64_t last = INT64_MIN;
  for (double value : ascending) {
    int64_t key = toOrderedInteger(value);
    EXPECT_LT(last, key) << value;
    last = key;
    EXPECT_EQ(value, fromOrderedInteger(key));
    EXPECT_EQ(std::signbit(value), std::signbit(fromOrderedInteger(key)));
  }
  for (double nan : {std::nan(""), -std::nan("")})
    EXPECT_EQ(INT64_MAX, toOrderedInteger(nan));
  EXPECT_TRUE(std::isnan(fromOrderedInteger(INT64_MAX)));
}

/// Blocks of 64 rows begin anew with each item.
TEST(Tiles, ranges) {
  auto check = [](int64_t begin, int64_t end, int64_t rows, int64_t blocks,
                  int64_t tiles) {
    TensorLayout layout;
    layout.shape = {2, 70, 5000};
    layout.dimAxes = {0, 0, 0};
    layout.flat = true;
    layout.begin = begin;
    layout.end = end;
    int64_t size = end - begin;
    TileShape shape = getTileShape({"...b", "n", "m"}, layout, &size, 1);
    EXPECT_EQ(70, shape.part.n);
    EXPECT_EQ(size, shape.countElements());
    EXPECT_EQ(rows, shape.countRows()) << begin << ", " << end;
    EXPECT_EQ(blocks, shape.countBlocks()) << begin << ", " << end;
    EXPECT_EQ(tiles, shape.countTiles()) << begin << ", " << end;
    // As a vector it is its own.
    layout.shape = {2 * 70 * 5000};
    layout.dimAxes = {0};
    TileShape vector = getTileShape({"n"}, layout, &size, 1);
    EXPECT_EQ(size, vector.part.m);
    EXPECT_EQ(1, vector.part.n);
    EXPECT_EQ(0, vector.begin);
    EXPECT_EQ(size, vector.end);
    EXPECT_EQ(2 * 70 * 5000, vector.whole.m);
  };
  check(0, 700000, 140, 4, 8);
  check(0, 1, 1, 1, 2);
  check(4999, 5001, 2, 1, 2);
  check(64 * 5000 - 1, 64 * 5000 + 1, 2, 2, 4);
  check(350000 - 1, 350000 + 1, 2, 2, 4);
  check(350000, 350001, 1, 1, 2);
  check(77, 77, 0, 0, 0);
}

TEST(Tiles, dims) {
  auto check = [](Dims dims, std::vector<int64_t> extents, int64_t b, int64_t n,
                  int64_t m, int64_t tiles) {
    TileDims found = getTileDims(dims, extents.data(), int64_t(extents.size()));
    EXPECT_EQ(b, found.b);
    EXPECT_EQ(n, found.n);
    EXPECT_EQ(m, found.m);
    TileShape shape{found, found, 0, found.countElements()};
    EXPECT_EQ(tiles, shape.countTiles());
  };
  check({"*"}, {}, 1, 1, 1, 1);
  check({"*"}, {3, 4096}, 1, 1, 12288, 3);
  check({"*"}, {3, 0}, 1, 1, 0, 0);
  check({"n"}, {4097}, 1, 1, 4097, 2);
  check({"n", "m"}, {65, 4097}, 1, 65, 4097, 4);
  check({"...b", "m"}, {2, 3, 5}, 6, 1, 5, 6);
  check({"...b", "n", "m"}, {2, 3, 128, 4096}, 6, 128, 4096, 12);
  check({"...b", "n", "m"}, {0, 3, 5}, 0, 3, 5, 0);
  check({"...b"}, {2, 3}, 1, 1, 6, 1);
  check({}, {}, 1, 1, 1, 1);
}

TEST(Tiles, workspace) {
  TileShape shape{{2, 65, 1025}, {2, 65, 1025}, 0, 2 * 65 * 1025};
  auto bytes = [&](std::vector<Factor> size, int64_t each) {
    WorkspaceBuffer buffer;
    buffer.size = std::move(size);
    buffer.bytes = each;
    return getBufferBytes(buffer, shape);
  };
  EXPECT_EQ(64, bytes({}, 1));
  EXPECT_EQ(128, bytes({}, 65));
  EXPECT_EQ(2 * 65 * 2 * 8 + 32, bytes({Factor::B, Factor::N, Factor::ML}, 8));
  EXPECT_EQ(2 * 2 * 1025 * 8 + 32,
            bytes({Factor::B, Factor::NL, Factor::M}, 8));
  EXPECT_EQ(64, bytes({Factor::B1, Factor::N1}, 8));
  EXPECT_THROW(bytes({Factor::M, Factor::M, Factor::M, Factor::M, Factor::M,
                      Factor::M, Factor::M},
                     8),
               std::bad_alloc);
}

} // namespace
