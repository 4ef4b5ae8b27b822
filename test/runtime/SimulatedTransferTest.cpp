//===- SimulatedTransferTest.cpp - transfers of ranks that are threads ----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"
#include "support/SimulatedRanks.h"

#include "stepc/simulated.h"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>

using namespace stepc_test;

namespace {

using Sizes = std::vector<int64_t>;

/// Transfers of the ranks of a world.
class TransferWorld {
public:
  explicit TransferWorld(Sizes sizes) {
    EXPECT_EQ(STEPC_OK, stepcSimulatedWorldCreate(
                            sizes.data(), int64_t(sizes.size()), &world));
    for (int64_t size : sizes)
      numRanks *= size;
    EXPECT_EQ(STEPC_OK, stepcSimulatedWorldSetDeadline(world, 5000));
  }
  ~TransferWorld() { stepcSimulatedWorldDestroy(world); }

  StepcCommunicator get(int64_t rank) {
    StepcCommunicator communicator = {};
    communicator.structSize = sizeof(communicator);
    EXPECT_EQ(STEPC_OK,
              stepcSimulatedWorldGetCommunicator(world, rank, &communicator));
    return communicator;
  }
  /// "" or the message.
  std::string start(int64_t rank, const StepcTransfer &transfer, void *&work) {
    StepcCommunicator communicator = get(rank);
    char message[512] = "";
    int32_t code = communicator.start(communicator.context, &transfer, &work,
                                      message, sizeof(message));
    EXPECT_EQ(code == 0, message[0] == 0);
    return message;
  }
  std::string finish(int64_t rank, void *work) {
    StepcCommunicator communicator = get(rank);
    char message[512] = "";
    int32_t code = communicator.finish(communicator.context, work, message,
                                       sizeof(message));
    EXPECT_EQ(code == 0, message[0] == 0);
    return message;
  }
  std::string run(int64_t rank, const StepcTransfer &transfer) {
    void *work = nullptr;
    std::string message = start(rank, transfer, work);
    return message.empty() ? finish(rank, work) : message;
  }
  std::vector<std::string>
  forEach(const std::function<std::string(int64_t)> &visit) {
    std::vector<std::string> said(static_cast<size_t>(numRanks));
    inThreads(numRanks,
              [&](int64_t rank) { said[size_t(rank)] = visit(rank); });
    return said;
  }

  StepcSimulatedWorld *world = nullptr;
  int64_t numRanks = 1;
};

StepcTransfer makeAllToAll(uint64_t axes, const char *send, char *receive,
                           const Sizes &sent, const Sizes &received) {
  return {axes,        STEPC_ALL_TO_ALL, 0, send, receive,
          sent.data(), received.data()};
}
StepcTransfer makeGather(uint64_t axes, const char *send, char *receive,
                         const Sizes &received) {
  return {axes, STEPC_ALL_GATHER, 0, send, receive, nullptr, received.data()};
}

/// Several are under way, finished in another order; of uneven sizes.
TEST(SimulatedTransfer, several) {
  TransferWorld world({2, 3});
  auto said = world.forEach([&](int64_t rank) {
    int64_t row = rank / 3, column = rank % 3;
    // Rank i of the row has i + 1 times its letter for each of the three.
    std::string letters(size_t(3 * (column + 1)), char('a' + rank));
    Sizes sent(3, column + 1), received = {1, 2, 3};
    char first[8] = "", second[4] = "", third[4] = "";
    // And then two times its letter for itself and the one below it.
    std::string both(2, char('A' + rank));
    third[row] = both[0];
    void *works[3];
    std::string words;
    words += world.start(
        rank, makeAllToAll(2, letters.data(), first, sent, received), works[0]);
    words += world.start(
        rank, makeAllToAll(1, both.data(), second, {1, 1}, {1, 1}), works[1]);
    // In its place already.
    words +=
        world.start(rank, makeGather(1, third + row, third, {1, 1}), works[2]);
    for (int i : {2, 0, 1})
      words += world.finish(rank, works[i]);
    char low = char('a' + 3 * row), high = char('A' + column);
    EXPECT_EQ((std::string{low, char(low + 1), char(low + 1), char(low + 2),
                           char(low + 2), char(low + 2)}),
              first);
    EXPECT_EQ((std::string{high, char(high + 3)}), second);
    EXPECT_EQ((std::string{high, char(high + 3)}), third);
    return words;
  });
  for (const std::string &message : said)
    EXPECT_EQ("", message);
  for (int64_t rank = 0; rank < 6; ++rank) {
    StepcSimulatedCounters counters = {};
    counters.structSize = sizeof(counters);
    ASSERT_OK(stepcSimulatedWorldGetCounters(world.world, rank, &counters));
    EXPECT_EQ(0, counters.rounds);
    EXPECT_EQ(3, counters.calls);
    EXPECT_EQ(2 * (rank % 3 + 1) + 1 + 1, counters.bytes);
  }
}

/// A group of one rank.
TEST(SimulatedTransfer, alone) {
  TransferWorld world({1});
  char receive[4] = "";
  EXPECT_EQ("", world.run(0, makeAllToAll(1, "abc", receive, {3}, {3})));
  EXPECT_STREQ("abc", receive);
  EXPECT_EQ("", world.run(0, makeAllToAll(0, "def", receive, {3}, {3})));
  EXPECT_STREQ("def", receive);
}

void expectSaid(const std::vector<std::string> &said, const char *message) {
  for (const std::string &each : said)
    EXPECT_EQ(message, each);
}

TEST(SimulatedTransfer, mismatches) {
  char receive[3][16] = {};
  const char send[16] = "";
  TransferWorld kinds({2});
  expectSaid(kinds.forEach([&](int64_t rank) {
    Sizes sizes = {4, 4};
    return kinds.run(rank,
                     rank ? makeGather(1, send, receive[rank], sizes)
                          : makeAllToAll(1, send, receive[rank], sizes, sizes));
  }),
             "transfer over axes [0]: rank 1 has all_gather, rank 0 has "
             "all_to_all");
  TransferWorld sizes({3});
  expectSaid(sizes.forEach([&](int64_t rank) {
    Sizes sent(3, rank == 2 ? 5 : 4), received(3, 4);
    return sizes.run(rank,
                     makeAllToAll(1, send, receive[rank], sent, received));
  }),
             "transfer over axes [0]: rank 2 has 5 bytes for rank 0, which "
             "expects 4");
  // And so for ever.
  EXPECT_EQ("transfer over axes [0]: rank 2 has 5 bytes for rank 0, which "
            "expects 4",
            sizes.run(0, makeGather(1, send, receive[0], {1, 1, 1})));
  TransferWorld parts({2});
  expectSaid(parts.forEach([&](int64_t rank) {
    return parts.run(rank, makeGather(1, send, receive[rank],
                                      {4, rank ? int64_t(5) : int64_t(4)}));
  }),
             "transfer over axes [0]: rank 1 has 5 bytes for rank 0, which "
             "expects 4");
}

TEST(SimulatedTransfer, deadline) {
  TransferWorld world({4});
  ASSERT_OK(stepcSimulatedWorldSetDeadline(world.world, 100));
  char receive[4][16] = {};
  auto said = world.forEach([&](int64_t rank) {
    return rank % 2 ? world.run(rank, makeGather(1, "abc", receive[rank],
                                                 {3, 3, 3, 3}))
                    : std::string();
  });
  EXPECT_EQ(said[1], said[3]);
  for (const char *part : {"transfer over axes [0] of rank ",
                           ": not started by rank 0, 2 within 100 ms"})
    EXPECT_NE(std::string::npos, said[1].find(part)) << said[1];
  // What is made late is made no more.
  EXPECT_EQ(said[1],
            world.run(0, makeGather(1, "abc", receive[0], {3, 3, 3, 3})));
}

TEST(SimulatedTransfer, badTransfers) {
  char receive[16] = "";
  Sizes good = {2, 2};
  auto refuse = [&](StepcTransfer transfer, const char *message) {
    TransferWorld world({2});
    EXPECT_EQ(message, world.run(1, transfer));
  };
  StepcTransfer transfer = makeAllToAll(1, "abcd", receive, good, good);
  transfer.axes = 4;
  refuse(transfer, "rank 1: a transfer is over axes [2], the grid has 1 axes");
  transfer.axes = 1;
  transfer.kind = 2;
  refuse(transfer, "rank 1: a transfer has kind 2, which is not known");
  transfer.kind = STEPC_ALL_TO_ALL;
  transfer.sendBytes = nullptr;
  refuse(transfer, "rank 1: a transfer does not say how many bytes cross");
  transfer.kind = STEPC_ALL_GATHER;
  transfer.receiveBytes = nullptr;
  refuse(transfer, "rank 1: a transfer does not say how many bytes cross");
  refuse(makeAllToAll(1, nullptr, receive, good, good),
         "rank 1: a transfer has 4 bytes and no address");
  refuse(makeAllToAll(1, "abcd", nullptr, good, good),
         "rank 1: a transfer has 4 bytes and no address");
  refuse(makeAllToAll(1, "abcd", receive, {2, -1}, good),
         "rank 1: a transfer has -1 bytes");
}

/// From when the last rank has started it; meanwhile others do other things.
TEST(SimulatedTransfer, delay) {
  TransferWorld world({1});
  ASSERT_OK(stepcSimulatedWorldSetDelay(world.world, 200000));
  char receive[4] = "";
  auto begin = std::chrono::steady_clock::now();
  void *works[2];
  for (void *&work : works)
    EXPECT_EQ("", world.start(0, makeGather(1, "abc", receive, {3}), work));
  EXPECT_LT(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(190));
  for (void *work : works)
    EXPECT_EQ("", world.finish(0, work));
  auto length = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(length, std::chrono::milliseconds(200));
  EXPECT_LT(length, std::chrono::milliseconds(390));
}

/// A caller of an earlier version has no room for what is new.
TEST(SimulatedTransfer, communicators) {
  TransferWorld world({2});
  StepcCommunicator communicator;
  std::memset(&communicator, 0x5a, sizeof(communicator));
  StepcCommunicator before = communicator;
  constexpr size_t kLeast = offsetof(StepcCommunicator, enqueue);
  communicator.structSize = kLeast;
  ASSERT_OK(stepcSimulatedWorldGetCommunicator(world.world, 0, &communicator));
  EXPECT_EQ(kLeast, communicator.structSize);
  EXPECT_EQ(0, std::memcmp(reinterpret_cast<char *>(&communicator) + kLeast,
                           reinterpret_cast<char *>(&before) + kLeast,
                           sizeof(communicator) - kLeast));
  communicator.structSize = offsetof(StepcCommunicator, start);
  ASSERT_OK(stepcSimulatedWorldGetCommunicator(world.world, 0, &communicator));
  EXPECT_EQ(before.start, communicator.start);
  EXPECT_EQ(0, communicator.success);
  communicator.structSize = kLeast - 1;
  EXPECT_REFUSED(
      STEPC_INVALID_ARGUMENT,
      "StepcCommunicator has struct size 23, the least is 24",
      stepcSimulatedWorldGetCommunicator(world.world, 0, &communicator));
  EXPECT_REFUSED(
      STEPC_INVALID_ARGUMENT, "rank 2 does not exist, the world has 2",
      stepcSimulatedWorldGetCommunicator(world.world, 2, &communicator));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "out is NULL",
                 stepcSimulatedWorldGetCommunicator(world.world, 0, nullptr));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "world is NULL",
                 stepcSimulatedWorldGetCommunicator(nullptr, 0, &communicator));
}

} // namespace
