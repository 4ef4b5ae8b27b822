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
    EXPECT_EQ(70, shape.getRows());
    EXPECT_EQ(size, shape.countElements());
    EXPECT_EQ(rows, shape.countRows()) << begin << ", " << end;
    EXPECT_EQ(blocks, shape.countBlocks()) << begin << ", " << end;
    EXPECT_EQ(tiles, shape.countTiles()) << begin << ", " << end;
    // As a vector it is its own.
    layout.shape = {2 * 70 * 5000};
    layout.dimAxes = {0};
    TileShape vector = getTileShape({"n"}, layout, &size, 1);
    EXPECT_EQ(size, vector.getColumns());
    EXPECT_EQ(1, vector.getRows());
    EXPECT_EQ(0, vector.begin);
    EXPECT_EQ(size, vector.end);
    EXPECT_EQ(2 * 70 * 5000, vector.whole[0]);
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
  auto check = [](Dims dims, std::vector<int64_t> extents,
                  std::vector<int64_t> expected, int64_t n, int64_t m,
                  int64_t tiles) {
    TensorLayout layout;
    layout.shape = extents;
    layout.dimAxes.resize(extents.size());
    TileShape shape =
        getTileShape(dims, layout, extents.data(), int64_t(extents.size()));
    ASSERT_EQ(int64_t(expected.size()), shape.roles.numDims);
    EXPECT_TRUE(
        std::equal(expected.begin(), expected.end(), shape.part.begin()));
    EXPECT_EQ(shape.part, shape.whole);
    EXPECT_EQ(n, shape.getRows());
    EXPECT_EQ(m, shape.getColumns());
    EXPECT_EQ(tiles, shape.countTiles());
    std::vector<int64_t> words(size_t(STEPC_TILE_OPERANDS(5)));
    storeTileShape(shape, words.data());
    TileShape loaded = loadTileShape(shape.roles, words.data());
    EXPECT_EQ(shape.part, loaded.part);
    EXPECT_EQ(shape.whole, loaded.whole);
    EXPECT_EQ(shape.end, loaded.end);
  };
  check({"*"}, {}, {1}, 1, 1, 1);
  check({"*"}, {3, 4096}, {12288}, 1, 12288, 3);
  check({"*"}, {3, 0}, {0}, 1, 0, 0);
  check({"n"}, {4097}, {4097}, 1, 4097, 2);
  check({"n", "m"}, {65, 4097}, {65, 4097}, 65, 4097, 4);
  check({"n", "1"}, {4097, 1}, {4097, 1}, 1, 4097, 2);
  check({"...b", "m"}, {2, 3, 5}, {6, 5}, 1, 5, 6);
  check({"...b", "n", "m"}, {2, 3, 128, 4096}, {6, 128, 4096}, 128, 4096, 12);
  check({"...b", "n", "m"}, {0, 3, 5}, {0, 3, 5}, 3, 5, 0);
  check({"o", "i", "h", "w"}, {8, 4, 65, 3}, {8, 4, 65, 3}, 65, 3, 64);
  check({"...b", "o", "i", "h", "w"}, {2, 2, 8, 4, 65, 3}, {4, 8, 4, 65, 3}, 65,
        3, 256);
  check({"...b"}, {2, 3}, {6}, 1, 6, 1);
  check({}, {}, {1}, 1, 1, 1);
}

TEST(Tiles, workspace) {
  TensorLayout layout;
  layout.shape = {2, 65, 1025};
  layout.dimAxes.resize(3);
  TileShape shape =
      getTileShape({"...b", "n", "m"}, layout, layout.shape.data(), 3);
  const Factor b{Factor::Kind::Dim, 0, 1}, n{Factor::Kind::Dim, 1, 1},
      m{Factor::Kind::Dim, 2, 1}, blocks{Factor::Kind::Dim, 1, 64},
      leaves{Factor::Kind::Dim, 2, 1024};
  auto bytes = [&](std::vector<Factor> size, int64_t each) {
    WorkspaceBuffer buffer;
    buffer.size = std::move(size);
    buffer.bytes = each;
    return getBufferBytes(buffer, shape);
  };
  EXPECT_EQ(64, bytes({}, 1));
  EXPECT_EQ(128, bytes({}, 65));
  EXPECT_EQ(2 * 65 * 2 * 8 + 32, bytes({b, n, leaves}, 8));
  EXPECT_EQ(2 * 2 * 1025 * 8 + 32, bytes({b, blocks, m}, 8));
  EXPECT_EQ(64, bytes({{Factor::Kind::Dim, 0, 1024}, blocks}, 8));
  EXPECT_THROW(bytes({m, m, m, m, m, m, m}, 8), std::bad_alloc);
}

} // namespace
