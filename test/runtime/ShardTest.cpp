//===- ShardTest.cpp - tensors that ranks share -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/ShardModel.h"

using namespace stepc_test;

namespace {

const std::vector<const char *> kReports = {"norm2", "largest", "totals"};

/// Tensors in all layouts that share has, on two axes; several of each, so that
/// they lie behind each other.
std::vector<ShardSpec> makeAll() {
  return {makeDims({7, 10}, {A, 0}),
          makeDims({70, 3}, {A, B}),
          makeFlat({3, 70, 5}, A),
          makeDims({9, 4100}, {0, B}),
          makeDims({5, 5}, {0, 0}),
          makeFlat({130, 4100}, A | B),
          makeDims({4, 6, 8}, {A, 0, 0}),
          makeDims({4, 2, 6, 8}, {A, 0, B, 0}),
          makeFlat({2, 3}, B),
          makeDims({12, 10}, {A | B, 0}),
          makeDims({7, 10}, {0, A}),
          makeFlat({200, 64}, B)};
}

/// Steps both worlds, with new gradients each time.
void stepBoth(ShardWorld &world, ShardWorld &whole, int steps) {
  for (int step = 1; step <= steps; ++step) {
    for (ShardWorld *each : {&world, &whole}) {
      for (ShardRank &rank : each->ranks)
        rank.fillGrads(uint32_t(step));
      each->step();
    }
    expectSame(world, whole, kReports, "rows");
  }
}

TEST(Shard, everyLayout) {
  for (std::vector<int64_t> sizes :
       {std::vector<int64_t>{2, 2}, {3, 2}, {1, 4}, {1, 1}}) {
    SCOPED_TRACE(testing::Message() << sizes[0] << " times " << sizes[1]);
    for (StepcPlanConfig config : {makeConfig(1), makeConfig(2, 600)}) {
      ShardWorld world(getShare(), sizes, makeAll(), config);
      ShardWorld whole(getShare(), {}, makeAll());
      world.bindAll();
      whole.bindAll();
      stepBoth(world, whole, 2);
    }
  }
}

/// Memory of a pack moves as it grows, and rows follow.
TEST(Shard, severalBinds) {
  ShardWorld world(getShare(), {2, 2}, makeAll());
  ShardWorld whole(getShare(), {}, makeAll());
  whole.bindAll();
  for (size_t i = 0; i < makeAll().size(); ++i)
    for (ShardRank &rank : world.ranks)
      rank.bind(i, i + 1);
  stepBoth(world, whole, 2);
}

/// Bound between two steps.
TEST(Shard, bindAfterStep) {
  ShardWorld world(getShare(), {2, 2}, makeAll());
  ShardWorld whole(getShare(), {}, makeAll());
  for (size_t half : {size_t(0), makeAll().size() / 2}) {
    for (ShardWorld *each : {&world, &whole}) {
      for (ShardRank &rank : each->ranks)
        rank.bind(half, half + makeAll().size() / 2);
      each->step();
    }
  }
  for (size_t i = 0; i < makeAll().size(); ++i)
    for (int64_t k = 0; k < whole.ranks[0].params[i].size(); ++k)
      for (ShardRank &rank : world.ranks) {
        if (!rank.has(i, k))
          continue;
        ASSERT_EQ(whole.ranks[0].params[i].get(k), rank.params[i].get(k))
            << "tensor " << i;
      }
}

/// A tensor without a gradient changes nothing, here or elsewhere, and one
/// that only some ranks have counts what these have.
TEST(Shard, missing) {
  ShardWorld world(getShare(), {2, 2}, makeAll());
  ShardWorld whole(getShare(), {}, makeAll());
  world.bindAll();
  whole.bindAll();
  stepBoth(world, whole, 1);
  for (ShardWorld *each : {&world, &whole})
    for (ShardRank &rank : each->ranks)
      for (size_t i : {1, 2, 8})
        rank.setGrad(i, false);
  stepBoth(world, whole, 1);
  for (ShardWorld *each : {&world, &whole})
    for (ShardRank &rank : each->ranks)
      for (size_t i : {1, 2, 8})
        rank.setGrad(i, true);
  stepBoth(world, whole, 1);
}

/// A rank without gradients takes part in the rounds of others: its parts count
/// as none.
TEST(Shard, idleRank) {
  std::vector<ShardSpec> specs = {makeDims({8, 6}, {A, 0}),
                                  makeFlat({5, 6}, A)};
  ShardWorld world(getShare(), {2}, specs), whole(getShare(), {}, specs);
  world.bindAll();
  whole.bindAll();
  stepBoth(world, whole, 1);
  for (size_t i : {0, 1})
    world.ranks[0].setGrad(i, false);
  // What rank 0 does not have, the whole does not either.
  for (size_t i : {0, 1})
    for (int64_t k = 0; k < whole.ranks[0].grads[i].size(); ++k)
      if (world.ranks[0].has(i, k))
        whole.ranks[0].grads[i].set(k, 0.0);
  world.step();
  whole.step();
  for (ShardRank &rank : world.ranks) {
    EXPECT_EQ(whole.ranks[0].getReport("norm2"), rank.getReport("norm2"));
    // What all ranks of a tensor have the first of them counts, if it steps.
    EXPECT_EQ(0.0, rank.getReport("totals"));
  }
  expectSame(world, whole, {});
  // Counts are of tensors that took part.
  int64_t count = -1;
  ASSERT_OK(stepcPlanGetCount(world.ranks[0].plan.get(), 0, &count));
  EXPECT_EQ(1, count);
  ASSERT_OK(stepcPlanGetCount(world.ranks[1].plan.get(), 0, &count));
  EXPECT_EQ(2, count);
}

/// Statistics of the model over all ranks: what is replicated counts once.
TEST(Shard, replicatedCountsOnce) {
  ShardSpec replicated = makeDims({5, 5}, {0, 0});
  ShardSpec half = makeDims({6, 8}, {A, 0});
  ShardWorld world(getShare(), {2, 3}, {replicated, half});
  ShardWorld whole(getShare(), {}, {replicated, half});
  world.bindAll();
  whole.bindAll();
  stepBoth(world, whole, 1);
}

/// Other coordinates of a distinct axis hold other tensors: all count.
TEST(Shard, distinct) {
  ShardSpec stage = makeDims({6, 8}, {A, 0});
  stage.distinctAxes = B;
  ShardSpec owned = makeDims({4, 4}, {0, 0});
  owned.distinctAxes = A | B;
  ShardWorld world(getShare(), {2, 3}, {stage, owned});
  ShardWorld whole(getShare(), {}, {stage, owned});
  world.bindAll();
  whole.bindAll();
  world.step();
  whole.step();
  // One stage of three, and one tensor of six.
  double expected[2] = {0.0, 0.0};
  for (size_t i : {0, 1})
    for (int64_t k = 0; k < whole.ranks[0].grads[i].size(); ++k) {
      double g = whole.ranks[0].grads[i].get(k);
      expected[i] += g * g;
    }
  for (ShardRank &rank : world.ranks) {
    EXPECT_EQ(3 * expected[0] + 6 * expected[1], rank.getReport("norm2"));
    EXPECT_EQ(3 * expected[0] + 6 * expected[1], rank.getReport("totals"));
    for (int64_t k = 0; k < 48; ++k) {
      if (rank.has(0, k)) {
        EXPECT_EQ(whole.ranks[0].params[0].get(k), rank.params[0].get(k));
      }
    }
  }
}

/// All tensors of a round cross in one call for each group and operation.
TEST(Shard, counters) {
  std::vector<ShardSpec> specs;
  for (int i = 0; i < 5; ++i)
    specs.push_back(makeDims({6, 10}, {A, 0}));
  ShardWorld world(getShare(), {2}, specs);
  world.bindAll();
  world.step();
  world.step();
  for (int64_t r : {0, 1}) {
    StepcPlanInfo info = getInfo(world.ranks[size_t(r)].plan.get());
    StepcSimulatedCounters counters = world.getCounters(r);
    // Two steps of two rounds. Round 0: sums and maxima of packs and of
    // statistics; round 1: one statistic.
    EXPECT_EQ(4, info.exchangeRounds);
    EXPECT_EQ(2 * (4 + 1), info.exchangeCalls);
    // Columns, total, largest; two statistics, and that the group takes part.
    EXPECT_EQ(2 * 8 * (5 * (10 + 1 + 1) + 2 + 1 + 1), info.exchangeBytes);
    EXPECT_EQ(info.exchangeRounds, counters.rounds);
    EXPECT_EQ(info.exchangeCalls, counters.calls);
    EXPECT_EQ(info.exchangeBytes, counters.bytes);
  }
  // Alone, nothing is called.
  ShardWorld alone(getShare(), {1}, specs);
  alone.bindAll();
  alone.step();
  EXPECT_EQ(0, getInfo(alone.ranks[0].plan.get()).exchangeRounds);
  EXPECT_EQ(0, getInfo(alone.ranks[0].plan.get()).exchangeCalls);
}

/// An error of the communicator ends the step on all ranks, and the plan.
TEST(Shard, poisoned) {
  ShardWorld world(getShare(), {2}, {makeDims({6, 10}, {A, 0})});
  world.bindAll();
  // Rank 1 has one tensor less.
  ShardRank &other = world.ranks[0];
  ShardSpec spec = makeDims({4, 10}, {A, 0});
  other.specs.push_back(spec);
  ASSERT_OK(stepcSimulatedWorldSetDeadline(world.world, 2000));
  StepcBinding binding = {};
  Array param(Type::F32, {1, 10}), grad(Type::F32, {1, 10});
  StepcLayout layout = {sizeof(layout),      2, 0, spec.shape.data(),
                        spec.dimAxes.data(), 0, 0, 0};
  binding = makeBinding("w", param.dl(), grad.dl());
  binding.layout = &layout;
  ASSERT_OK(stepcPlanBind(other.plan.get(), &binding, 1, nullptr));
  world.forEachRank([](ShardRank &rank) {
    EXPECT_STATUS(STEPC_COMMUNICATION_ERROR, rank.step());
    EXPECT_EQ("round 0 of 'share': call 0 over axes [0]: rank 1 has 11 "
              "elements, rank 0 has 22",
              rank.message);
    EXPECT_STATUS(STEPC_POISONED, stepcStep(rank.plan.get()));
  });
}

/// Ranks whose workers are more than there are processors come to an end.
TEST(Shard, manyThreads) {
  std::vector<ShardSpec> specs = {makeFlat({300, 4100}, A),
                                  makeDims({300, 2100}, {A, 0})};
  ShardWorld world(getShare(), {4}, specs, makeConfig(3));
  ShardWorld whole(getShare(), {}, specs);
  ASSERT_OK(stepcSimulatedWorldSetDelay(world.world, 2000));
  world.bindAll();
  whole.bindAll();
  stepBoth(world, whole, 2);
}

} // namespace
