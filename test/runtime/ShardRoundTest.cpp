//===- ShardRoundTest.cpp - rounds of several ranks ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/ShardModel.h"

#include <cmath>

using namespace stepc_test;

namespace {

/// Where no rank has a gradient nothing happens.
TEST(Shard, noGradients) {
  std::vector<ShardSpec> specs = {makeDims({8}, {A})};
  ShardWorld world(getShardedClip(), {2}, specs);
  world.bindAll();
  for (ShardRank &rank : world.ranks)
    rank.setGrad(0, false);
  world.step();
  for (ShardRank &rank : world.ranks) {
    double value = 0.0;
    EXPECT_TRUE(std::isnan(rank.getReport("grad_norm")));
    ASSERT_OK(stepcPlanGetScalar(rank.plan.get(), 0, "scale", &value));
    EXPECT_EQ(8.0, value);
    StepcLastStep last = {};
    last.structSize = sizeof(last);
    ASSERT_OK(stepcPlanGetLastStep(rank.plan.get(), &last));
    EXPECT_EQ(0, last.skipped);
  }
}

/// A group runs on all ranks if one of them has a tensor in it.
TEST(Shard, groupOfOneRank) {
  ShardSpec first = makeFlat({40}, A), second = makeFlat({30}, A);
  second.group = 1;
  ShardWorld world(getShardedClip(), {2}, {first, second}, {}, 2);
  ShardWorld whole(getShardedClip(), {}, {first, second}, {}, 2);
  world.bindAll();
  whole.bindAll();
  // The other rank has the whole tensor: in all, the gradient of its part.
  world.ranks[0].setGrad(1, false);
  for (int64_t k = 0; k < 30; ++k)
    if (world.ranks[0].has(1, k))
      whole.ranks[0].grads[1].set(k, 0.0);
  world.step();
  whole.step();
  for (int64_t group : {0, 1})
    for (ShardRank &rank : world.ranks) {
      double expected = 0.0, found = 0.0;
      ASSERT_OK(
          stepcPlanGetScalar(whole.ranks[0].plan.get(), group, "d", &expected));
      ASSERT_OK(stepcPlanGetScalar(rank.plan.get(), group, "d", &found));
      EXPECT_EQ(expected, found) << "group " << group;
    }
  for (ShardRank &rank : world.ranks)
    rank.setGrad(1, false);
  double before = 0.0, after = 0.0;
  ASSERT_OK(stepcPlanGetScalar(world.ranks[0].plan.get(), 1, "d", &before));
  world.step();
  ASSERT_OK(stepcPlanGetScalar(world.ranks[0].plan.get(), 1, "d", &after));
  EXPECT_EQ(before, after);
}

/// NaN on one rank is found by all, and the step is skipped by all.
TEST(Shard, skip) {
  std::vector<ShardSpec> specs = {makeDims({40}, {A}), makeFlat({9, 7}, A),
                                  makeDims({6}, {0})};
  for (double bad : {double(NAN), -double(NAN), double(INFINITY)}) {
    ShardWorld world(getShardedClip(), {4}, specs);
    world.bindAll();
    world.ranks[2].grads[0].set(15, bad);
    ASSERT_TRUE(world.ranks[2].has(0, 15));
    world.step();
    for (ShardRank &rank : world.ranks) {
      StepcLastStep last = {};
      last.structSize = sizeof(last);
      ASSERT_OK(stepcPlanGetLastStep(rank.plan.get(), &last));
      EXPECT_EQ(1, last.skipped);
      EXPECT_EQ(0, last.skippedRound);
      double scale = 0.0;
      ASSERT_OK(stepcPlanGetScalar(rank.plan.get(), 0, "scale", &scale));
      EXPECT_EQ(4.0, scale);
    }
  }
}

/// Which groups take part crosses with the maxima where there are no sums.
TEST(Shard, maximaAlone) {
  nlohmann::json manifest = makeShareManifest();
  for (nlohmann::json &statistic : manifest["statistics"])
    statistic["kind"] = "amax";
  PackagePtr package = loadManifest(manifest);
  ShardSpec first = makeDims({6, 10}, {A, 0}), second = first;
  second.group = 1;
  ShardWorld world(package.get(), {2}, {first, second}, {}, 2);
  ShardWorld whole(package.get(), {}, {first, second}, {}, 2);
  world.bindAll();
  whole.bindAll();
  // Group 1 is of one rank.
  world.ranks[0].setGrad(1, false);
  world.step();
  whole.step();
  EXPECT_EQ(whole.ranks[0].getReport("largest"),
            world.ranks[0].getReport("largest"));
  for (ShardRank &rank : world.ranks) {
    EXPECT_EQ(8.0, rank.getReport("largest"));
    StepcPlanInfo info = getInfo(rank.plan.get());
    // Packs of both operations and maxima; maxima.
    EXPECT_EQ(3 + 1, info.exchangeCalls);
    EXPECT_EQ(8 * (2 * 12 + 2 + 2 + 1), info.exchangeBytes);
  }
}

/// A rank that has no group yet has nothing to wait for.
TEST(Shard, noGroups) {
  ShardWorld world(getShare(), {2}, {}, {}, 0);
  world.step();
  EXPECT_EQ(0, getInfo(world.ranks[0].plan.get()).exchangeRounds);
}

/// Clip adds up floats that round: all ranks have the same bits, in any run.
TEST(Shard, sameBitsOnAllRanks) {
  std::vector<ShardSpec> specs;
  for (int64_t i = 0; i < 40; ++i)
    specs.push_back(i % 3 == 0   ? makeDims({300 + i}, {A})
                    : i % 3 == 1 ? makeFlat({20 + i, 9}, A | B)
                                 : makeDims({50}, {0}));
  std::vector<double> first;
  for (int run = 0; run < 3; ++run) {
    ShardWorld world(getShardedClip(), {2, 2}, specs);
    ShardWorld whole(getShardedClip(), {}, specs);
    for (ShardWorld *each : {&world, &whole}) {
      for (ShardRank &rank : each->ranks)
        for (size_t i = 0; i < specs.size(); ++i)
          rank.grads[i].fill(uint32_t(i));
      each->bindAll();
      each->step();
    }
    std::vector<double> found;
    for (const char *report : {"grad_norm", "factor"}) {
      double value = world.ranks[0].getReport(report);
      found.push_back(value);
      for (ShardRank &rank : world.ranks)
        EXPECT_EQ(value, rank.getReport(report));
      EXPECT_NEAR(whole.ranks[0].getReport(report), value, 1e-9 * value);
    }
    if (run == 0)
      first = found;
    EXPECT_EQ(first, found);
  }
}

} // namespace
