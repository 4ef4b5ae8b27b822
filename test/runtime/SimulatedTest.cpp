//===- SimulatedTest.cpp - ranks that are threads -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"
#include "support/SimulatedRanks.h"

#include "stepc/simulated.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

using namespace stepc_test;

namespace {

class World {
public:
  explicit World(std::vector<int64_t> sizes) {
    EXPECT_EQ(STEPC_OK, stepcSimulatedWorldCreate(
                            sizes.data(), int64_t(sizes.size()), &world));
    for (int64_t size : sizes)
      numRanks *= size;
    EXPECT_EQ(STEPC_OK, stepcSimulatedWorldSetDeadline(world, 5000));
  }
  ~World() { stepcSimulatedWorldDestroy(world); }

  /// Makes the calls of one rank; "" or the message.
  std::string reduce(int64_t rank, std::vector<StepcReduceCall> calls) {
    StepcCommunicator communicator = {};
    communicator.structSize = sizeof(communicator);
    EXPECT_EQ(STEPC_OK,
              stepcSimulatedWorldGetCommunicator(world, rank, &communicator));
    char message[512] = "";
    int32_t code =
        communicator.reduce(communicator.context, calls.data(),
                            int64_t(calls.size()), message, sizeof(message));
    EXPECT_EQ(code == 0, message[0] == 0);
    return message;
  }
  /// Runs all ranks, each in a thread; what they say.
  std::vector<std::string>
  run(const std::function<std::string(int64_t)> &visit) {
    std::vector<std::string> said(static_cast<size_t>(numRanks));
    inThreads(numRanks,
              [&](int64_t rank) { said[size_t(rank)] = visit(rank); });
    return said;
  }
  StepcSimulatedCounters getCounters(int64_t rank) {
    StepcSimulatedCounters counters = {};
    counters.structSize = sizeof(counters);
    EXPECT_EQ(STEPC_OK, stepcSimulatedWorldGetCounters(world, rank, &counters));
    return counters;
  }

  StepcSimulatedWorld *world = nullptr;
  int64_t numRanks = 1;
};

StepcReduceCall makeSum(uint64_t axes, std::vector<double> &data) {
  return {axes, STEPC_SUM_F64, 0, data.data(), int64_t(data.size())};
}
StepcReduceCall makeMax(uint64_t axes, std::vector<int64_t> &data) {
  return {axes, STEPC_MAX_I64, 0, data.data(), int64_t(data.size())};
}

/// Rank r of 2 x 3 is at (r / 3, r % 3).
TEST(Simulated, groups) {
  World world({2, 3});
  auto said = world.run([&](int64_t rank) {
    for (int round = 0; round < 50; ++round) {
      std::vector<double> first = {double(rank), 1.0}, second = {double(rank)},
                          all = {1.0}, none;
      std::vector<int64_t> most = {rank * round, -rank};
      std::string message = world.reduce(
          rank, {makeSum(1, first), makeSum(2, second), makeMax(2, most),
                 makeSum(3, all), makeSum(3, none), makeSum(0, second)});
      if (!message.empty())
        return message;
      int64_t column = rank % 3, row = rank / 3;
      EXPECT_EQ((std::vector<double>{double(2 * column + 3), 2.0}), first);
      EXPECT_EQ((std::vector<double>{double(9 * row + 3)}), second);
      EXPECT_EQ((std::vector<int64_t>{(3 * row + 2) * round, -3 * row}), most);
      EXPECT_EQ(std::vector<double>{6.0}, all);
    }
    return std::string();
  });
  for (const std::string &message : said)
    EXPECT_EQ("", message);
  for (int64_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(50, world.getCounters(rank).rounds);
    EXPECT_EQ(50 * 6, world.getCounters(rank).calls);
    EXPECT_EQ(50 * 8 * 7, world.getCounters(rank).bytes);
  }
}

/// In the order of the ranks, whoever comes last.
TEST(Simulated, sumsInOrder) {
  for (int64_t last = 0; last < 3; ++last) {
    World world({3});
    world.run([&](int64_t rank) {
      double values[] = {1e100, 1.0, -1e100};
      std::vector<double> data = {values[rank]};
      std::this_thread::sleep_for(
          std::chrono::milliseconds(rank == last ? 30 : 0));
      EXPECT_EQ("", world.reduce(rank, {makeSum(1, data)}));
      EXPECT_EQ(0.0, data[0]);
      return std::string();
    });
  }
}

void expectAll(const std::vector<std::string> &said, const char *message) {
  for (const std::string &each : said)
    EXPECT_EQ(message, each);
}

TEST(Simulated, mismatches) {
  World counts({2});
  expectAll(counts.run([&](int64_t rank) {
    std::vector<double> data(size_t(10 + rank));
    return counts.reduce(rank, {makeSum(1, data)});
  }),
            "call 0 over axes [0]: rank 1 has 11 elements, rank 0 has 10");
  World kinds({2, 1});
  expectAll(kinds.run([&](int64_t rank) {
    std::vector<double> sum(3);
    std::vector<int64_t> most(3);
    return kinds.reduce(
        rank, {makeSum(3, sum), rank ? makeMax(3, most) : makeSum(3, sum)});
  }),
            "call 1 over axes [0, 1]: rank 1 has max of i64, rank 0 has sum of "
            "f64");
  World numbers({3});
  expectAll(numbers.run([&](int64_t rank) {
    std::vector<double> data(3);
    std::vector<StepcReduceCall> calls(rank == 2 ? 2 : 1, makeSum(1, data));
    return numbers.reduce(rank, calls);
  }),
            "calls over axes [0]: rank 2 has 2, rank 0 has 1");
  // And so for ever.
  std::vector<double> data(3);
  EXPECT_EQ("calls over axes [0]: rank 2 has 2, rank 0 has 1",
            numbers.reduce(0, {makeSum(1, data)}));
}

TEST(Simulated, deadline) {
  World world({4});
  ASSERT_OK(stepcSimulatedWorldSetDeadline(world.world, 100));
  auto said = world.run([&](int64_t rank) {
    std::vector<double> data(3);
    return rank % 2 ? world.reduce(rank, {makeSum(1, data)}) : std::string();
  });
  // Which of the two says so first is a matter of chance.
  EXPECT_EQ(said[1], said[3]);
  for (const char *part :
       {"call 0 over axes [0] of rank ", "no call of rank 0, 2 within 100 ms"})
    EXPECT_NE(std::string::npos, said[1].find(part)) << said[1];
}

/// Two threads that take themselves for one rank.
TEST(Simulated, oneRankTwice) {
  World world({2});
  const char *message = "rank 0 is in two rounds at once";
  expectAll(world.run([&](int64_t) {
    std::vector<double> data(3);
    return world.reduce(0, {makeSum(1, data)});
  }),
            message);
}

TEST(Simulated, badCalls) {
  std::vector<double> data(3);
  auto refuse = [&](StepcReduceCall call, const char *message) {
    World world({2});
    EXPECT_EQ(message, world.reduce(1, {makeSum(0, data), call}));
  };
  refuse(makeSum(4, data),
         "rank 1: call 1 is over axes [2], the grid has 1 axes");
  refuse({1, 2, 0, data.data(), 3},
         "rank 1: call 1 has reduction 2, which is not known");
  refuse({1, 0, 0, nullptr, 3}, "rank 1: call 1 has 3 elements and no address");
  refuse({1, 0, 0, data.data(), -1},
         "rank 1: call 1 has -1 elements and an address");
}

TEST(Simulated, delay) {
  World world({1});
  ASSERT_OK(stepcSimulatedWorldSetDelay(world.world, 20000));
  std::vector<double> data(3);
  auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ("", world.reduce(0, {makeSum(1, data), makeSum(1, data)}));
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(40));
}

TEST(Simulated, refused) {
  StepcSimulatedWorld *world = nullptr;
  auto refuse = [&](std::vector<int64_t> sizes, const char *message) {
    EXPECT_REFUSED(
        STEPC_INVALID_ARGUMENT, message,
        stepcSimulatedWorldCreate(sizes.data(), int64_t(sizes.size()), &world));
    EXPECT_EQ(nullptr, world);
  };
  refuse({2, 0}, "axis 1 has size 0, the least is 1");
  refuse({64, 65}, "the world has more than 4096 ranks");
  refuse(std::vector<int64_t>(65, 1), "the world has 65 axes, the most are 64");
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "2 axes were given, without sizes",
                 stepcSimulatedWorldCreate(nullptr, 2, &world));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "out is NULL",
                 stepcSimulatedWorldCreate(nullptr, 0, nullptr));
  World good({2});
  StepcCommunicator communicator = {};
  communicator.structSize = sizeof(communicator);
  EXPECT_REFUSED(
      STEPC_INVALID_ARGUMENT, "rank 2 does not exist, the world has 2",
      stepcSimulatedWorldGetCommunicator(good.world, 2, &communicator));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "world is NULL",
                 stepcSimulatedWorldGetCommunicator(nullptr, 0, &communicator));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "out is NULL",
                 stepcSimulatedWorldGetCommunicator(good.world, 0, nullptr));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "the delay is -1, which is negative",
                 stepcSimulatedWorldSetDelay(good.world, -1));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "the deadline is -1, which is negative",
                 stepcSimulatedWorldSetDeadline(good.world, -1));
  StepcSimulatedCounters counters = {};
  counters.structSize = 8;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "StepcSimulatedCounters has struct size 8, the least is 32",
                 stepcSimulatedWorldGetCounters(good.world, 0, &counters));
  stepcSimulatedWorldDestroy(nullptr);
}

} // namespace
