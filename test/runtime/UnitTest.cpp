//===- UnitTest.cpp - parts of the runtime against brute force ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Json.h"
#include "core/Overlap.h"
#include "core/RowLayout.h"
#include "core/Sha256.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace stepc;

namespace {

TEST(Sha256, knownValues) {
  auto hash = [](const std::string &s) {
    return sha256Hex(s.data(), s.size());
  };
  // FIPS 180-4's examples.
  EXPECT_EQ("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            hash(""));
  EXPECT_EQ("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            hash("abc"));
  EXPECT_EQ("248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"));
  EXPECT_EQ("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
            hash(std::string(1000000, 'a')));
}

TEST(Json, values) {
  Json json;
  ASSERT_TRUE(parseJson(" {\"a\" : [1, -2.5e-1, true, false, null, {}], "
                        "\"b\":\"x\\n\\u00e9\\ud83d\\ude00\\/\"}\n",
                        json));
  const Json *a = json.find("a");
  ASSERT_TRUE(a && a->elements.size() == 6);
  EXPECT_EQ(Json::Kind::Integer, a->elements[0].kind);
  EXPECT_EQ(1, a->elements[0].integer);
  EXPECT_EQ(1.0, a->elements[0].number);
  EXPECT_EQ(Json::Kind::Number, a->elements[1].kind);
  EXPECT_EQ(-0.25, a->elements[1].number);
  EXPECT_TRUE(a->elements[2].boolean);
  EXPECT_EQ(Json::Kind::Boolean, a->elements[3].kind);
  EXPECT_EQ(Json::Kind::Null, a->elements[4].kind);
  EXPECT_EQ(Json::Kind::Object, a->elements[5].kind);
  ASSERT_TRUE(json.find("b"));
  EXPECT_EQ("x\n\xc3\xa9\xf0\x9f\x98\x80/", json.find("b")->string);
  EXPECT_FALSE(json.find("c"));
}

TEST(Json, numbersAsOthersWriteThem) {
  for (double value : {0.0, 1e-8, 0.1, 1e308, -5e-324, 123456789.125}) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.17g", value);
    Json json;
    ASSERT_TRUE(parseJson(text, json)) << text;
    EXPECT_EQ(value, json.number) << text;
  }
  Json large;
  ASSERT_TRUE(parseJson("18446744073709551616", large));
  EXPECT_EQ(Json::Kind::Number, large.kind);
}

TEST(Json, refusals) {
  for (const char *text : {"",
                           " ",
                           "{",
                           "}",
                           "[1,]",
                           "[1 2]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{a:1}",
                           "{\"a\":1,}",
                           "{\"a\":1,\"a\":2}",
                           "01",
                           "-",
                           "+1",
                           ".5",
                           "1.",
                           "1e",
                           "1e+",
                           "0x10",
                           "NaN",
                           "Infinity",
                           "1e999",
                           "tru",
                           "nulll",
                           "'a'",
                           "\"a",
                           "\"\\x\"",
                           "\"\\u12g4\"",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"\\ud800\\u0041\"",
                           "\"\n\"",
                           "1 1",
                           "[]]",
                           "// 1"}) {
    Json json;
    EXPECT_FALSE(parseJson(text, json)) << text;
  }
  auto nest = [](size_t n) {
    return std::string(n, '[') + std::string(n, ']');
  };
  Json deep;
  EXPECT_TRUE(parseJson(nest(33), deep));
  EXPECT_FALSE(parseJson(nest(34), deep));
  EXPECT_FALSE(parseJson(nest(1000000), deep));
}

/// As many as a definition may have names. To look for each among all would
/// take minutes.
TEST(Json, objectsWithManyKeys) {
  constexpr int64_t kKeys = 300000;
  auto name = [](int64_t k) {
    return "name" + std::to_string(k * 7919 % kKeys);
  };
  std::string text;
  for (int k = 0; k < kKeys; ++k)
    text += (k ? ",\"" : "{\"") + name(k) + "\":" + std::to_string(k);
  Json many, twice;
  ASSERT_TRUE(parseJson(text + "}", many));
  for (int k = 0; k < kKeys; ++k) {
    const Json *value = many.find(name(k));
    ASSERT_TRUE(value);
    EXPECT_EQ(k, value->integer);
  }
  EXPECT_FALSE(many.find("name"));
  EXPECT_FALSE(parseJson(text + ",\"name0\":0}", twice));
}

/// A view of few dims, with all its offsets from the address.
struct RandomView {
  std::vector<int64_t> extents, strides;

  RandomView(std::mt19937 &random, int64_t maxExtent, int64_t maxStride,
             bool zero) {
    size_t rank = random() % 4;
    for (size_t i = 0; i < rank; ++i) {
      extents.push_back(1 + int64_t(random() % uint64_t(maxExtent)));
      int64_t stride = int64_t(random() % uint64_t(maxStride + 1));
      if (stride == 0 && !zero)
        stride = 1;
      strides.push_back(random() % 5 ? stride : -stride);
    }
  }

  View view(uintptr_t address, int64_t itemSize) const {
    return {address, int64_t(extents.size()), extents.data(), strides.data(),
            itemSize};
  }

  std::vector<int64_t> offsets() const {
    std::vector<int64_t> all = {0};
    for (size_t d = 0; d < extents.size(); ++d) {
      std::vector<int64_t> next;
      for (int64_t offset : all)
        for (int64_t i = 0; i < extents[d]; ++i)
          next.push_back(offset + i * strides[d]);
      all = std::move(next);
    }
    return all;
  }
};

std::set<int64_t> getBytes(const RandomView &view, int64_t address,
                           int64_t itemSize) {
  std::set<int64_t> bytes;
  for (int64_t offset : view.offsets())
    for (int64_t b = 0; b < itemSize; ++b)
      bytes.insert(address + offset * itemSize + b);
  return bytes;
}

TEST(Overlap, itselfAgainstBruteForce) {
  std::mt19937 random(1);
  OverlapChecker checker;
  int found = 0;
  for (int i = 0; i < 20000; ++i) {
    RandomView view(random, 6, 12, true);
    std::vector<int64_t> offsets = view.offsets();
    std::sort(offsets.begin(), offsets.end());
    bool expected =
        std::adjacent_find(offsets.begin(), offsets.end()) != offsets.end();
    ASSERT_EQ(expected, checker.overlapsItself(view.view(1 << 20, 4)))
        << describeShape(view.extents.data(), int64_t(view.extents.size()))
        << " "
        << describeShape(view.strides.data(), int64_t(view.strides.size()));
    found += expected;
  }
  EXPECT_GT(found, 2000);
  EXPECT_LT(found, 18000);
}

TEST(Overlap, pairsAgainstBruteForce) {
  std::mt19937 random(2);
  OverlapChecker checker;
  int found = 0;
  for (int i = 0; i < 10000; ++i) {
    RandomView a(random, 5, 15, true), b(random, 5, 15, true);
    int64_t itemA = 2 << random() % 3, itemB = 2 << random() % 3;
    int64_t atA = 4096, atB = 4096 + int64_t(random() % 100) * 2 - 100;
    std::set<int64_t> bytesA = getBytes(a, atA, itemA);
    std::set<int64_t> bytesB = getBytes(b, atB, itemB);
    bool expected = std::any_of(bytesA.begin(), bytesA.end(), [&](int64_t x) {
      return bytesB.count(x) != 0;
    });
    ASSERT_EQ(expected, checker.overlap(a.view(uintptr_t(atA), itemA),
                                        b.view(uintptr_t(atB), itemB)));
    found += expected;
  }
  EXPECT_GT(found, 1000);
  EXPECT_LT(found, 9000);
}

/// The sweep finds a pair when there is one, and then a right one.
TEST(Overlap, manyAgainstBruteForce) {
  std::mt19937 random(3);
  OverlapChecker checker;
  int found = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<RandomView> views;
    std::vector<std::set<int64_t>> bytes;
    std::vector<int64_t> addresses;
    std::vector<bool> written;
    checker.clear();
    for (int i = 0; i < 5; ++i) {
      views.emplace_back(random, 3, 8, true);
      addresses.push_back(4096 + int64_t(random() % 200) * 4);
      bytes.push_back(getBytes(views[i], addresses[i], 4));
      written.push_back(random() % 2);
    }
    for (int i = 0; i < 5; ++i)
      checker.add(
          {views[i].view(uintptr_t(addresses[i]), 4), written[i], i, 0});
    auto conflicts = [&](int64_t a, int64_t b) {
      return (written[a] || written[b]) &&
             std::any_of(bytes[a].begin(), bytes[a].end(),
                         [&](int64_t x) { return bytes[b].count(x) != 0; });
    };
    bool expected = false;
    for (int64_t a = 0; a < 5; ++a)
      for (int64_t b = 0; b < a; ++b)
        expected |= conflicts(a, b);
    const OwnedView *first = nullptr, *second = nullptr;
    ASSERT_EQ(expected, checker.find(first, second));
    if (expected) {
      EXPECT_TRUE(conflicts(first->tensor, second->tensor));
      EXPECT_LT(first->tensor, second->tensor);
    }
    found += expected;
  }
  EXPECT_GT(found, 200);
  EXPECT_LT(found, 1800);
}

/// A view so entangled that the search gives up counts as overlapping: large
/// coprime strides, and a target that they meet only together.
TEST(Overlap, searchEnds) {
  std::vector<int64_t> extents = {997, 991, 983, 977, 971},
                       strides = {1000003, 1000033, 1000037, 1000039, 1000081};
  OverlapChecker checker;
  EXPECT_TRUE(
      checker.overlapsItself({1 << 20, 5, extents.data(), strides.data(), 4}));
}

TEST(View, dense) {
  auto dense = [](std::vector<int64_t> extents, std::vector<int64_t> strides) {
    return isDense(
        {0, int64_t(extents.size()), extents.data(), strides.data(), 4});
  };
  EXPECT_TRUE(dense({}, {}));
  EXPECT_TRUE(dense({2, 3}, {3, 1}));
  EXPECT_TRUE(dense({2, 3}, {1, 2}));
  EXPECT_TRUE(dense({2, 1, 3}, {3, 99, 1}));
  EXPECT_FALSE(dense({2, 3}, {4, 1}));
  EXPECT_FALSE(dense({2, 2}, {0, 3}));
  EXPECT_FALSE(dense({3}, {-1}));
  EXPECT_FALSE(dense({3}, {2}));
}

/// The offsets of all operands, index by index, are the same multiset before
/// and after the dims have been sorted and joined.
TEST(RowLayout, keepsTheElements) {
  std::mt19937 random(4);
  int contiguous = 0;
  for (int round = 0; round < 20000; ++round) {
    int64_t rank = int64_t(random() % 5), operands = 1 + int64_t(random() % 3);
    std::vector<int64_t> extents, strides;
    for (int64_t d = 0; d < rank; ++d)
      extents.push_back(1 + int64_t(random() % 3));
    for (int64_t k = 0; k < operands; ++k) {
      // Mostly dense in some order, now and then with a gap.
      std::vector<int64_t> own(rank), like(rank);
      for (int64_t d = 0; d < rank; ++d)
        like[d] = random() % 3 ? rank - d : int64_t(random() % 4);
      setDenseLike(extents.data(), rank, like.data(), own.data());
      if (rank && random() % 4 == 0)
        own[random() % uint64_t(rank)] += 1;
      strides.insert(strides.end(), own.begin(), own.end());
    }
    RowLayout layout;
    layout.compute(extents.data(), rank, strides.data(), operands, 0);

    auto collect = [&](const std::vector<int64_t> &ext, const int64_t *str) {
      std::multiset<std::vector<int64_t>> all;
      int64_t n = 1, r = int64_t(ext.size());
      for (int64_t e : ext)
        n *= e;
      for (int64_t i = 0; i < n; ++i) {
        std::vector<int64_t> offsets(operands);
        for (int64_t d = r, rest = i; d-- > 0; rest /= ext[d])
          for (int64_t k = 0; k < operands; ++k)
            offsets[k] += rest % ext[d] * str[k * r + d];
        all.insert(offsets);
      }
      return all;
    };
    auto before = collect(extents, strides.data());
    const std::vector<int64_t> &words = layout.getWords();
    int64_t newRank = layout.getRank();
    if (newRank == 0) {
      ++contiguous;
      ASSERT_TRUE(words.empty());
      std::vector<int64_t> flat = {int64_t(before.size())};
      ASSERT_EQ(before,
                collect(flat, std::vector<int64_t>(operands, 1).data()));
      continue;
    }
    ASSERT_EQ(size_t(newRank * (1 + operands)), words.size());
    std::vector<int64_t> newExtents(words.begin(), words.begin() + newRank);
    ASSERT_EQ(before, collect(newExtents, words.data() + newRank));
    // No extents of 1, the parameter's order, nothing more to join.
    const int64_t *param = words.data() + newRank;
    for (int64_t d = 0; d < newRank; ++d)
      ASSERT_GT(newExtents[d], 1);
    for (int64_t d = 0; d + 1 < newRank; ++d) {
      ASSERT_GE(param[d], param[d + 1]);
      bool joins = true;
      for (int64_t k = 0; k < operands; ++k)
        joins &= param[k * newRank + d] ==
                 param[k * newRank + d + 1] * newExtents[d + 1];
      ASSERT_FALSE(joins);
    }
  }
  EXPECT_GT(contiguous, 1000);
  EXPECT_LT(contiguous, 19000);
}

} // namespace
