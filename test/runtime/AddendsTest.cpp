//===- AddendsTest.cpp - conversions, sums and cuts -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Addends.h"
#include "core/Cuts.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

using namespace stepc;

namespace {

/// The value of a narrow float, of so many bits of mantissa and this bias.
double decode(uint16_t bits, int mantissa, int bias) {
  int exponent = (bits & 0x7fff) >> mantissa;
  int fraction = bits & ((1 << mantissa) - 1);
  double value = exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa)
                               : std::ldexp(fraction + (1 << mantissa),
                                            exponent - bias - mantissa);
  if (exponent == (0x7fff >> mantissa))
    value = fraction ? NAN : INFINITY;
  return bits & 0x8000 ? -value : value;
}

struct Narrow {
  Storage storage;
  int mantissa, bias;
};
constexpr Narrow kNarrow[] = {{Storage::BF16, 7, 127}, {Storage::F16, 10, 15}};

/// All 65536 of them, to f32 and back.
TEST(Addends, everyNarrowNumber) {
  std::vector<uint16_t> all(65536), back(65536);
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = uint16_t(i);
  for (const Narrow &narrow : kNarrow) {
    std::vector<float> wide(65536);
    convertElements(all.data(), narrow.storage, wide.data(), Storage::F32,
                    65536, 1.0);
    convertElements(wide.data(), Storage::F32, back.data(), narrow.storage,
                    65536, 1.0);
    for (size_t i = 0; i < all.size(); ++i) {
      double expected = decode(all[i], narrow.mantissa, narrow.bias);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
        ASSERT_TRUE(std::isnan(decode(back[i], narrow.mantissa, narrow.bias)));
        continue;
      }
      ASSERT_EQ(expected, double(wide[i])) << i;
      ASSERT_EQ(std::signbit(expected), std::signbit(wide[i])) << i;
      ASSERT_EQ(all[i], back[i]) << i;
    }
  }
}

/// The nearest, the even one of two, whatever the number is between: also of
/// f64, where rounding to f32 first would round twice.
TEST(Addends, roundsOnce) {
  for (const Narrow &narrow : kNarrow)
    for (uint32_t bits = 0; bits < 0x7fff >> narrow.mantissa << narrow.mantissa;
         bits += narrow.mantissa == 7 ? 37 : 5) {
      double low = decode(uint16_t(bits), narrow.mantissa, narrow.bias);
      double high = decode(uint16_t(bits + 1), narrow.mantissa, narrow.bias);
      if (std::isinf(high))
        high = low +
               (low - decode(uint16_t(bits - 1), narrow.mantissa, narrow.bias));
      double half = low + (high - low) / 2;
      uint32_t even = bits + (bits & 1);
      struct {
        double value;
        uint32_t expected;
      } cases[] = {{half, even},
                   {std::nextafter(half, 0.0), bits},
                   {std::nextafter(half, INFINITY), bits + 1}};
      for (auto [value, expected] : cases)
        for (double sign : {1.0, -1.0}) {
          double own = sign * value;
          uint16_t found;
          convertElements(&own, Storage::F64, &found, narrow.storage, 1, 1.0);
          ASSERT_EQ(expected, uint32_t(found & 0x7fff)) << value;
          ASSERT_EQ(sign < 0, (found & 0x8000) != 0);
          auto single = float(own);
          if (double(single) != own)
            continue;
          convertElements(&single, Storage::F32, &found, narrow.storage, 1,
                          1.0);
          ASSERT_EQ(expected, uint32_t(found & 0x7fff)) << value;
        }
    }
}

/// In the order of the rows, which lie apart, however they are cut.
TEST(Addends, sums) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  constexpr int64_t kCount = 5000, kStride = 5003;
  for (int64_t rows : {1, 2, 7})
    for (double divisor : {1.0, 3.0}) {
      std::vector<float> values(size_t(rows * kStride));
      for (float &value : values)
        value = normal(random) * std::exp2(float(random() % 20));
      std::vector<float> sum(kCount), parts(kCount);
      addElements(values.data(), kStride, rows, Storage::F32, sum.data(),
                  Storage::F32, kCount, divisor, false);
      for (int64_t at = 0; at < kCount; at += 77)
        addElements(values.data() + at, kStride, rows, Storage::F32,
                    parts.data() + at, Storage::F32,
                    std::min<int64_t>(77, kCount - at), divisor, false);
      ASSERT_EQ(sum, parts);
      for (int64_t i = 0; i < kCount; ++i) {
        float expected = values[size_t(i)];
        for (int64_t row = 1; row < rows; ++row)
          expected += values[size_t(i + row * kStride)];
        ASSERT_EQ(expected / float(divisor), sum[size_t(i)]);
      }
      // What is there already comes first.
      std::vector<float> more = values;
      more.resize(kCount);
      addElements(values.data(), kStride, rows, Storage::F32, more.data(),
                  Storage::F32, kCount, divisor, true);
      for (int64_t i = 0; i < kCount; ++i)
        ASSERT_EQ(values[size_t(i)] + sum[size_t(i)], more[size_t(i)]);
    }
}

/// A sum begins with its first addend: -0 stays.
TEST(Addends, signOfZero) {
  float zeros[] = {-0.0f, -0.0f}, sum = 1.0f;
  addElements(zeros, 1, 2, Storage::F32, &sum, Storage::F32, 1, 1.0, false);
  EXPECT_TRUE(std::signbit(sum));
}

TEST(Addends, divides) {
  double values[] = {1.0, -5.0};
  float found[2];
  convertElements(values, Storage::F64, found, Storage::F32, 2, 3.0);
  EXPECT_EQ(float(1.0 / 3.0), found[0]);
  uint16_t one = 0x3f80; // of bf16
  convertElements(&one, Storage::BF16, found, Storage::F32, 1, 3.0);
  EXPECT_EQ(1.0f / 3.0f, found[0]);
}

TEST(Cuts, line) {
  EXPECT_EQ((std::vector<Cuts>{{0, 10, 10}, {0, 22, 30}}),
            cutLine({10, 30}, 2));
  EXPECT_EQ((std::vector<Cuts>{{0, 16, 32, 48}}), cutLine({48}, 3));
  // More ranks than elements.
  EXPECT_EQ((std::vector<Cuts>{{0, 3, 3, 3, 3}}), cutLine({3}, 4));
  EXPECT_EQ((std::vector<Cuts>{{0, 0, 0}, {0, 0, 0}}), cutLine({0, 0}, 2));
  EXPECT_EQ((std::vector<Cuts>{{0, 70}}), cutLine({70}, 1));
}

TEST(Cuts, rows) {
  EXPECT_EQ((Cuts{0, 20, 40, 50, 50}), cutRows(5, 10, 4));
  EXPECT_EQ((Cuts{0, 0, 0}), cutRows(5, 0, 2));
  EXPECT_EQ((Cuts{0, 0, 0}), cutRows(0, 3, 2));
}

TEST(Cuts, owners) {
  Owners owners;
  const std::vector<int64_t> two(2, -1), three(3, -1);
  EXPECT_EQ(
      (std::vector<int64_t>{2, 0, 1, 1, 2}),
      owners.choose({1, 0}, {3, 10, 5, 2, 4}, std::vector<int64_t>(5, -1), 3));
  // Loads are 10, 7 and 7 now; of other axes none.
  EXPECT_EQ((std::vector<int64_t>{1, 2}),
            owners.choose({1, 0}, {1, 1}, two, 3));
  EXPECT_EQ((std::vector<int64_t>{0, 1, 0}),
            owners.choose({1, 2}, {0, 0, 0}, three, 2));
  // Of equal ones the first is first; costs need not be whole numbers.
  EXPECT_EQ((std::vector<int64_t>{1, 0, 1}),
            owners.choose({4, 0}, {1.5, 1.75, 1.5}, three, 2));
  // One that is given counts, and nobody else has the dearest then.
  EXPECT_EQ((std::vector<int64_t>{1, 1, 0}),
            owners.choose({8, 0}, {2, 3, 9}, {-1, 1, -1}, 2));
  EXPECT_EQ((Cuts{0, 0, 9, 9}), giveWhole(9, 1, 3));
}

} // namespace
