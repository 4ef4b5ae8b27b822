//===- SharedMemoryTest.cpp - exchanges of processes of one host ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Processes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

using namespace stepc_test;

namespace {

using Bytes = std::vector<unsigned char>;
using Sizes = std::vector<int64_t>;

/// Byte i of what one rank has for another in an exchange.
unsigned char makeByte(int64_t exchange, int64_t from, int64_t to, int64_t i) {
  return static_cast<unsigned char>(exchange * 31 + from * 7 + to * 3 + i +
                                    i / 251);
}

/// One of a list of exchanges that all ranks make from the same seed.
struct Made {
  int64_t number = 0;
  int32_t kind = STEPC_ALL_GATHER;
  /// From each rank to each.
  std::vector<Sizes> sizes;
  Bytes send, receive;
  Sizes sendBytes, receiveBytes;
  void *work = nullptr;

  int64_t getTo(int64_t to) const { return kind == STEPC_ALL_TO_ALL ? to : 0; }

  StepcTransfer prepare(int64_t rank) {
    auto numRanks = int64_t(sizes.size());
    for (int64_t to = 0; to < numRanks; ++to) {
      sendBytes.push_back(sizes[size_t(rank)][size_t(to)]);
      receiveBytes.push_back(sizes[size_t(to)][size_t(rank)]);
      if (kind == STEPC_ALL_GATHER && to > 0)
        continue;
      for (int64_t i = 0; i < sendBytes.back(); ++i)
        send.push_back(makeByte(number, rank, getTo(to), i));
    }
    int64_t total = 0;
    for (int64_t bytes : receiveBytes)
      total += bytes;
    receive.assign(size_t(total), 0xee);
    return {1,
            kind,
            0,
            send.data(),
            receive.data(),
            kind == STEPC_ALL_TO_ALL ? sendBytes.data() : nullptr,
            receiveBytes.data()};
  }

  std::string check(int64_t rank) const {
    size_t at = 0;
    for (size_t from = 0; from < sizes.size(); ++from)
      for (int64_t i = 0; i < receiveBytes[from]; ++i, ++at)
        if (receive[at] != makeByte(number, int64_t(from), getTo(rank), i))
          return "exchange " + std::to_string(number) + " byte " +
                 std::to_string(i) + " from " + std::to_string(from);
    return "";
  }
};

int64_t pickSize(std::mt19937 &random) {
  switch (random() % 4) {
  case 0:
    return 0;
  case 1:
    return int64_t(random() % 100);
  case 2:
    return int64_t(random() % 100000);
  default: // more than all slots of an outbox
    return int64_t(random() % 3000000);
  }
}

Made pickExchange(std::mt19937 &random, int64_t number, int64_t numRanks) {
  Made made;
  made.number = number;
  made.kind = random() % 2 ? STEPC_ALL_GATHER : STEPC_ALL_TO_ALL;
  for (int64_t from = 0; from < numRanks; ++from) {
    Sizes list;
    int64_t all = pickSize(random);
    for (int64_t to = 0; to < numRanks; ++to)
      list.push_back(made.kind == STEPC_ALL_GATHER ? all
                                                   : pickSize(random) / 3);
    made.sizes.push_back(list);
  }
  return made;
}

/// A sum whose value depends on the order.
std::string sumInOrder(SharedRank &self, int64_t count, bool most) {
  auto get = [](int64_t rank, int64_t i) {
    return std::ldexp(1.0 + double(i % 97) / 128, int(rank * 17 % 40));
  };
  std::vector<double> data;
  std::vector<int64_t> whole;
  for (int64_t i = 0; i < count; ++i) {
    data.push_back(get(self.rank, i));
    whole.push_back((i * (self.rank + 3)) % 101);
  }
  std::string said =
      self.reduce({{1, STEPC_SUM_F64, 0, data.data(), count},
                   {1, STEPC_MAX_I64, 0, whole.data(), most ? count : 0}});
  for (int64_t i = 0; i < count && said.empty(); ++i) {
    double sum = get(0, i);
    int64_t highest = (i * 3) % 101;
    for (int64_t rank = 1; rank < self.numRanks; ++rank) {
      sum += get(rank, i);
      highest = std::max(highest, (i * (rank + 3)) % 101);
    }
    if (data[size_t(i)] != sum || (most && whole[size_t(i)] != highest))
      said = "element " + std::to_string(i) + " of " + std::to_string(count);
  }
  return said;
}

/// Exchanges of random kinds and sizes, several under way, which each rank
/// finishes in an order of its own.
std::string exchangeAtRandom(SharedRank &self, unsigned seed) {
  std::mt19937 random(seed), own(seed * 100 + unsigned(self.rank));
  for (int64_t batch = 0, number = 0; batch < 6; ++batch) {
    std::vector<Made> made;
    for (size_t n = 1 + random() % 5; made.size() < n;)
      made.push_back(pickExchange(random, number++, self.numRanks));
    bool sums = random() % 2;
    int64_t count = int64_t(random() % 2 ? random() % 100 : random() % 50000);
    for (Made &each : made)
      if (auto said = self.start(each.prepare(self.rank), each.work);
          !said.empty())
        return said;
    if (sums)
      if (auto said = sumInOrder(self, count, batch % 2); !said.empty())
        return said;
    std::shuffle(made.begin(), made.end(), own);
    for (Made &each : made) {
      if (auto said = self.finish(each.work); !said.empty())
        return said;
      if (auto said = each.check(self.rank); !said.empty())
        return said;
    }
  }
  return "";
}

void expectAll(const std::vector<std::string> &said, const std::string &words) {
  for (size_t rank = 0; rank < said.size(); ++rank)
    EXPECT_EQ(words, said[rank]) << "rank " << rank;
}

void expectHas(const std::string &said, const std::string &words) {
  EXPECT_NE(std::string::npos, said.find(words)) << said;
}

} // namespace

TEST(SharedMemory, ExchangesOfAllKindsAndSizesInAnyOrder) {
  for (unsigned seed = 0; seed < 8; ++seed)
    for (int64_t numRanks : {1, 2, 3, 5})
      expectAll(runRanks(numRanks,
                         [&](SharedRank &self) {
                           return exchangeAtRandom(self, seed);
                         }),
                "");
}

TEST(SharedMemory, SumsAreInTheOrderOfTheRanks) {
  expectAll(runRanks(4,
                     [](SharedRank &self) {
                       std::string said;
                       for (int64_t count : {0, 1, 2, 2048, 2049, 100001})
                         if (said.empty())
                           said = sumInOrder(self, count, true);
                       return said;
                     }),
            "");
}

/// Ranks that wait in one group go on with what others wait for in another. In
/// the last round each waits in another group: 0 in {0, 1}, 1 in {1, 2} and 2
/// in {0, 2}; each has more on its way than fits between it and the others, so
/// that nobody would finish if a rank moved only what it waits for.
TEST(SharedMemory, GroupsDoNotWaitForEachOther) {
  auto said = runInGroups(
      3, {{0, 1}, {1, 2}, {0, 2}},
      [](int64_t rank, std::vector<std::unique_ptr<SharedRank>> &own) {
        std::vector<Made> made(own.size());
        std::string said;
        for (int64_t round = 0; round < 20 && said.empty(); ++round) {
          for (size_t i = 0; i < own.size(); ++i) {
            made[i] = Made();
            made[i].number = round;
            made[i].sizes = {{1 << 21, 1 << 21}, {1 << 21, 1 << 21}};
            said += own[i]->start(made[i].prepare(own[i]->rank), made[i].work);
          }
          // Each finishes another group first.
          for (size_t k = 0; k < own.size(); ++k) {
            size_t i = (k + size_t(rank != 0)) % own.size();
            said += own[i]->finish(made[i].work);
            said += made[i].check(own[i]->rank);
          }
        }
        return said;
      });
  expectAll(said, "");
}

TEST(SharedMemory, WhatARankHasPutBeforeItEndsIsTaken) {
  auto said = runRanks(3, [](SharedRank &self) -> std::string {
    std::vector<int64_t> all;
    void *work = nullptr;
    int64_t value = self.rank;
    std::vector<int64_t> received(3), bytes(3, 8);
    std::string said = self.start({1, STEPC_ALL_GATHER, 0, &value,
                                   received.data(), nullptr, bytes.data()},
                                  work);
    if (self.rank == 1)
      _exit(0);
    usleep(100000);
    said += self.finish(work);
    return said + std::to_string(received[1]);
  });
  EXPECT_EQ("1", said[0]);
  EXPECT_EQ("1", said[2]);
}

TEST(SharedMemory, ARankThatIsKilledAtAnyTimeIsNamed) {
  std::mt19937 random(7);
  for (int point = 0; point < 20; ++point) {
    auto micros = useconds_t(random() % 30000);
    auto said = runRanks(4, [&](SharedRank &self) {
      std::vector<int64_t> all; // who is killed before others are there is none
      self.gather(self.rank, all);
      if (self.rank == 2 && fork() == 0) {
        usleep(micros);
        kill(getppid(), SIGKILL);
        _exit(0);
      }
      std::string said;
      for (unsigned seed = 0; said.empty(); ++seed)
        said = exchangeAtRandom(self, seed);
      return said;
    });
    EXPECT_EQ("signal 9", said[2]);
    for (size_t rank : {0, 1, 3})
      expectHas(said[rank], "rank 12 has ended");
  }
}

TEST(SharedMemory, ARankThatLeavesIsNamed) {
  auto said = runRanks(3, [](SharedRank &self) {
    std::vector<int64_t> all;
    std::string said = self.gather(1, all);
    if (self.rank == 1)
      self.leave();
    else
      said += self.gather(2, all);
    return said;
  });
  for (size_t rank : {0, 2})
    expectHas(said[rank],
              "all_gather of 8 bytes over axes [0]: rank 11 has left "
              "the group");
}

TEST(SharedMemory, ARankThatDoesNotComeIsNamedAfterTheDeadline) {
  auto said = runRanks(3, [](SharedRank &self) {
    std::vector<int64_t> all;
    std::string said = self.gather(1, all);
    self.setDeadline(200);
    if (self.rank == 1)
      usleep(600000);
    said += self.gather(2, all);
    return said + "; " + self.gather(3, all);
  });
  for (size_t rank : {0, 2})
    expectHas(said[rank],
              "all_gather of 8 bytes over axes [0] of rank 1" +
                  std::to_string(rank) +
                  " did not end within 200 ms: it waits for rank 11");
  // Who comes late is told, and no call of the group goes on.
  expectHas(said[1], " has given up: all_gather of 8 bytes");
  EXPECT_EQ(said[0].substr(0, said[0].find("; ")),
            said[0].substr(said[0].find("; ") + 2));
}

TEST(SharedMemory, RanksThatDoNotDoTheSameAreNamed) {
  auto said = runRanks(2, [](SharedRank &self) {
    std::vector<double> data(3, 1.0);
    std::vector<int64_t> all;
    return self.rank ? self.gather(1, all)
                     : self.reduce({{1, STEPC_SUM_F64, 0, data.data(), 3}});
  });
  // Whoever comes second finds it.
  std::string both = said[0] + said[1];
  if (both.find("rank 10 has given up") == std::string::npos)
    expectHas(both,
              "over axes [0]: rank 10 has sum of f64 by all_gather there");
  else
    expectHas(both, "over axes [0]: rank 11 has all_gather there");
  said = runRanks(2, [](SharedRank &self) {
    std::vector<double> data(size_t(3 + self.rank), 1.0);
    return self.reduce({{1, STEPC_SUM_F64, 0, data.data(), 3 + self.rank}});
  });
  both = said[0] + said[1];
  expectHas(both, "sum of f64 by all_gather of ");
  expectHas(both, ", which expects ");
}

/// A worker of a data loader has the rank's memory, and may end at any time.
TEST(SharedMemory, AProcessThatARankForksIsNone) {
  auto said = runRanks(2, [](SharedRank &self) -> std::string {
    std::vector<int64_t> all;
    std::string said = self.gather(1, all);
    pid_t child = fork();
    if (child == 0) {
      std::string said = self.gather(2, all);
      self.leave();
      _exit(said == "the process was forked from that of rank " +
                        std::to_string(10 + self.rank) + " and is no rank"
                ? 3
                : 4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    said += self.gather(2, all);
    return WEXITSTATUS(status) == 3 ? said : "the child was a rank";
  });
  expectAll(said, "");
}

/// What a process answers that opens the rank of the place: "" where it did,
/// and then it is there until it is waited for.
std::string openRefused(const std::string &place, int64_t rank,
                        StepcStatus expected) {
  StepcSharedGroup *group = nullptr;
  StepcStatus status =
      stepcSharedGroupOpen(place.c_str(), rank, nullptr, &group);
  if (status == STEPC_OK)
    return "";
  return status == expected ? stepcLastErrorMessage() : "another status";
}

/// The body in a process of its own, which is forked now and begins when it is
/// told the place.
class Opener {
public:
  explicit Opener(std::function<std::string(const std::string &)> body) {
    if (pipe(to) != 0 || pipe(from) != 0)
      abort();
    child = fork();
    if (child != 0)
      return;
    alarm(60);
    char place[128] = "";
    bool isTold = read(to[0], place, sizeof(place)) > 0;
    std::string said = isTold ? body(place) : "no place";
    _exit(write(from[1], said.data(), said.size()) == ssize_t(said.size()) ? 0
                                                                           : 1);
  }

  std::string tell(const char *place) {
    if (write(to[1], place, std::strlen(place)) < 0)
      abort();
    waitpid(child, nullptr, 0);
    char said[512] = "";
    close(from[1]);
    EXPECT_LE(0, read(from[0], said, sizeof(said) - 1));
    for (int end : {to[0], to[1], from[0]})
      close(end);
    return said;
  }

private:
  int to[2], from[2];
  pid_t child;
};

TEST(SharedMemory, PlacesThatAreNoneAreRefused) {
  Opener ranks([](const std::string &place) {
    std::string said;
    for (int64_t rank : {-1, 0, 3})
      said += openRefused(place, rank, STEPC_INVALID_ARGUMENT) + "\n";
    return said;
  });
  Opener places([](const std::string &place) {
    std::string wrong = place;
    wrong.back() = wrong.back() == '0' ? '1' : '0';
    std::string said = openRefused(wrong, 1, STEPC_COMMUNICATION_ERROR);
    for (const char *none : {"/proc/self/fd/0 1", "/proc/1/fd/none"})
      if (openRefused(none, 1, STEPC_COMMUNICATION_ERROR).empty())
        return std::string("opened");
    return said;
  });
  Opener twice([](const std::string &place) {
    std::string said = openRefused(place, 1, STEPC_OK);
    return said + openRefused(place, 2, STEPC_INVALID_ARGUMENT);
  });
  Opener late([](const std::string &place) {
    return openRefused(place, 1, STEPC_INVALID_ARGUMENT);
  });
  StepcSharedGroup *group = nullptr, *other = nullptr;
  char place[128], small[8];
  EXPECT_EQ(STEPC_INVALID_ARGUMENT, stepcSharedGroupCreate(0, nullptr, &group));
  EXPECT_EQ(STEPC_INVALID_ARGUMENT,
            stepcSharedGroupCreate(1025, nullptr, &group));
  ASSERT_EQ(STEPC_OK, stepcSharedGroupCreate(3, nullptr, &group));
  EXPECT_EQ(STEPC_INVALID_ARGUMENT,
            stepcSharedGroupGetPlace(group, small, sizeof(small)));
  ASSERT_EQ(STEPC_OK, stepcSharedGroupGetPlace(group, place, sizeof(place)));
  EXPECT_EQ("rank -1 of 3, expected 1 to 2\nrank 0 of 3, expected 1 to 2\n"
            "rank 3 of 3, expected 1 to 2\n",
            ranks.tell(place));
  expectHas(places.tell(place), "is not that of the group");
  EXPECT_EQ("this process has a rank of the group already", twice.tell(place));
  EXPECT_EQ("rank 1 of the group is there already", late.tell(place));
  EXPECT_EQ(STEPC_INVALID_ARGUMENT,
            stepcSharedGroupOpen(place, 1, nullptr, &other));
  EXPECT_STREQ("this process has a rank of the group already",
               stepcLastErrorMessage());
  EXPECT_EQ(STEPC_INVALID_ARGUMENT, stepcSharedGroupSetDeadline(group, 0));
  stepcSharedGroupDestroy(group);
  stepcSharedGroupDestroy(nullptr);
}

/// A call that cannot be made is no reason to wait for the others.
TEST(SharedMemory, ARefusedCallIsToldToTheOthers) {
  auto said = runRanks(2, [](SharedRank &self) {
    std::vector<int64_t> all;
    std::string together = self.gather(1, all);
    return together + (self.rank
                           ? self.gather(1, all)
                           : self.reduce({{1, STEPC_SUM_F64, 0, nullptr, 3}}));
  });
  expectHas(said[0], "rank 10: ");
  expectHas(said[1], "rank 10 has given up: " + said[0]);
}
