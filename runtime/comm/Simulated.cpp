//===- Simulated.cpp - ranks that are threads of one process ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/Simulated.h"

#include "comm/CallCheck.h"
#include "comm/Describe.h"
#include "comm/Tell.h"
#include "core/FloatMode.h"
#include "core/GiveCommunicator.h"
#include "core/Status.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <thread>

using namespace stepc;

static constexpr int64_t kMaxAxes = 64;
static constexpr int64_t kMaxRanks = 4096;

SimulatedWorld::SimulatedWorld(const int64_t *axisSizes, int64_t numAxes) {
  if (numAxes < 0 || (numAxes > 0 && !axisSizes))
    fail(STEPC_INVALID_ARGUMENT, "%lld axes were given, without sizes",
         static_cast<long long>(numAxes));
  if (numAxes > kMaxAxes)
    fail(STEPC_INVALID_ARGUMENT, "the world has %lld axes, the most are %lld",
         static_cast<long long>(numAxes), static_cast<long long>(kMaxAxes));
  int64_t numRanks = 1;
  for (int64_t i = numAxes; i-- > 0;) {
    if (axisSizes[i] < 1)
      fail(STEPC_INVALID_ARGUMENT, "axis %lld has size %lld, the least is 1",
           static_cast<long long>(i), static_cast<long long>(axisSizes[i]));
    if (axisSizes[i] > kMaxRanks / numRanks)
      fail(STEPC_INVALID_ARGUMENT, "the world has more than %lld ranks",
           static_cast<long long>(kMaxRanks));
    numRanks *= axisSizes[i];
  }
  grid = Grid({axisSizes, axisSizes + numAxes});
  ranks.resize(size_t(numRanks));
  for (int64_t i = 0; i < numRanks; ++i) {
    ranks[size_t(i)].world = this;
    ranks[size_t(i)].index = i;
  }
}

StepcCommunicator SimulatedWorld::getCommunicator(int64_t rank) {
  StepcCommunicator communicator = {};
  communicator.structSize = sizeof(communicator);
  communicator.context = &ranks[size_t(rank)];
  communicator.reduce = [](void *context, const StepcReduceCall *calls,
                           int64_t numCalls, char *message,
                           size_t messageSize) -> int32_t {
    auto *rank = static_cast<Rank *>(context);
    return tell(message, messageSize,
                [&] { rank->world->reduce(rank->index, calls, numCalls); });
  };
  communicator.start = [](void *context, const StepcTransfer *transfer,
                          void **outWork, char *message,
                          size_t messageSize) -> int32_t {
    auto *rank = static_cast<Rank *>(context);
    return tell(message, messageSize, [&] {
      *outWork = rank->world->start(rank->index, *transfer).release();
    });
  };
  communicator.finish = [](void *context, void *work, char *message,
                           size_t messageSize) -> int32_t {
    auto *rank = static_cast<Rank *>(context);
    return tell(message, messageSize, [&] {
      rank->world->finish(std::unique_ptr<Work>(static_cast<Work *>(work)));
    });
  };
  return communicator;
}

StepcSimulatedCounters SimulatedWorld::getCounters(int64_t rank) const {
  std::lock_guard<std::mutex> lock(mutex);
  return ranks[size_t(rank)].counters;
}

void SimulatedWorld::setDelay(int64_t microseconds) {
  std::lock_guard<std::mutex> lock(mutex);
  delay = std::chrono::microseconds(microseconds);
}

void SimulatedWorld::setDeadline(int64_t milliseconds) {
  std::lock_guard<std::mutex> lock(mutex);
  deadline = std::chrono::milliseconds(milliseconds);
}

void SimulatedWorld::reduce(int64_t rank, const StepcReduceCall *calls,
                            int64_t numCalls) {
  std::unique_lock<std::mutex> lock(mutex);
  if (delay.count() > 0) {
    auto pause = delay * numCalls;
    lock.unlock();
    std::this_thread::sleep_for(pause);
    lock.lock();
  }
  telling([&] {
    auto end = std::chrono::steady_clock::now() + deadline;
    StepcSimulatedCounters &counters = ranks[size_t(rank)].counters;
    ++counters.rounds;
    std::vector<std::pair<uint64_t, Calls>> perGroup;
    for (int64_t i = 0; i < numCalls; ++i) {
      std::string fault = findCallFault(calls[i], i, grid.getNumAxes());
      if (!fault.empty())
        fail(STEPC_COMMUNICATION_ERROR, "rank %lld: %s",
             static_cast<long long>(rank), fault.c_str());
      ++counters.calls;
      counters.bytes += 8 * calls[i].count;
      auto group =
          std::find_if(perGroup.begin(), perGroup.end(), [&](auto &entry) {
            return entry.first == calls[i].axes;
          });
      if (group == perGroup.end())
        group = perGroup.insert(group, {calls[i].axes, {}});
      group->second.push_back(calls[i]);
    }
    std::vector<MeetingPtr> meetings;
    for (auto &[axes, own] : perGroup)
      meetings.push_back(attend(rank, axes, std::move(own)));
    for (const MeetingPtr &meeting : meetings)
      requireDone(lock, rank, *meeting, end);
  });
}

void SimulatedWorld::requireSound() const {
  if (!failure.empty())
    fail(STEPC_COMMUNICATION_ERROR, "%s", failure.c_str());
}

/// Leaves the rank's calls at the meeting of a group; the last one makes them.
SimulatedWorld::MeetingPtr SimulatedWorld::attend(int64_t rank, uint64_t axes,
                                                  Calls calls) {
  std::vector<int64_t> members = grid.getMembers(rank, axes);
  GroupKey key{axes, members.front()};
  MeetingPtr &place = open[key];
  if (!place) {
    place = std::make_shared<Meeting>();
    place->axes = axes;
    place->members = members;
    place->calls.resize(members.size());
  }
  MeetingPtr meeting = place;
  size_t own =
      size_t(std::find(members.begin(), members.end(), rank) - members.begin());
  if (!meeting->calls[own].empty())
    fail(STEPC_COMMUNICATION_ERROR, "rank %lld is in two rounds at once",
         static_cast<long long>(rank));
  meeting->calls[own] = std::move(calls);
  if (++meeting->arrived < members.size())
    return meeting;
  open.erase(key);
  requireSame(*meeting);
  combine(*meeting);
  meeting->done = true;
  changed.notify_all();
  return meeting;
}

void SimulatedWorld::requireSame(const Meeting &meeting) const {
  const Calls &first = meeting.calls.front();
  auto refuse = [&](size_t member, const std::string &place,
                    const std::string &own, const std::string &other) {
    fail(STEPC_COMMUNICATION_ERROR,
         "%s over %s: rank %lld has %s, rank %lld "
         "has %s",
         place.c_str(), describeAxes(meeting.axes).c_str(),
         static_cast<long long>(meeting.members[member]), own.c_str(),
         static_cast<long long>(meeting.members.front()), other.c_str());
  };
  for (size_t m = 1; m < meeting.calls.size(); ++m) {
    const Calls &own = meeting.calls[m];
    if (own.size() != first.size())
      refuse(m, "calls", std::to_string(own.size()),
             std::to_string(first.size()));
    for (size_t i = 0; i < own.size(); ++i) {
      std::string place = "call " + std::to_string(i);
      if (own[i].reduction != first[i].reduction)
        refuse(m, place, getReductionName(own[i].reduction),
               getReductionName(first[i].reduction));
      if (own[i].count != first[i].count)
        refuse(m, place, std::to_string(own[i].count) + " elements",
               std::to_string(first[i].count));
    }
  }
}

/// In the order of the ranks.
template <typename T, typename Combine>
static void combineElements(const std::vector<T *> &parts, int64_t count,
                            Combine &&combine) {
  for (int64_t i = 0; i < count; ++i) {
    T value = parts[0][i];
    for (size_t m = 1; m < parts.size(); ++m)
      value = combine(value, parts[m][i]);
    for (T *part : parts)
      part[i] = value;
  }
}

// Not inlined: the additions must stay between FloatMode's two ends.
__attribute__((noinline)) static void sum(const std::vector<double *> &parts,
                                          int64_t count) {
  combineElements(parts, count, [](double a, double b) { return a + b; });
}

void SimulatedWorld::combine(Meeting &meeting) {
  FloatMode mode;
  for (size_t i = 0; i < meeting.calls.front().size(); ++i) {
    const StepcReduceCall &call = meeting.calls.front()[i];
    std::vector<double *> doubles;
    std::vector<int64_t *> integers;
    for (const Calls &calls : meeting.calls) {
      doubles.push_back(static_cast<double *>(calls[i].data));
      integers.push_back(static_cast<int64_t *>(calls[i].data));
    }
    if (call.reduction == STEPC_SUM_F64)
      sum(doubles, call.count);
    else
      combineElements(integers, call.count,
                      [](int64_t a, int64_t b) { return std::max(a, b); });
  }
}

/// Waits until the calls are made, or something went wrong anywhere.
void SimulatedWorld::requireDone(std::unique_lock<std::mutex> &lock,
                                 int64_t rank, const Meeting &meeting,
                                 std::chrono::steady_clock::time_point end) {
  bool woken = changed.wait_until(
      lock, end, [&] { return meeting.done || !failure.empty(); });
  if (meeting.done)
    return;
  if (woken)
    requireSound();
  std::string missing;
  for (size_t m = 0; m < meeting.members.size(); ++m)
    if (meeting.calls[m].empty())
      missing +=
          (missing.empty() ? "" : ", ") + std::to_string(meeting.members[m]);
  fail(STEPC_COMMUNICATION_ERROR,
       "call 0 over %s of rank %lld: no call of rank %s within %lld ms",
       describeAxes(meeting.axes).c_str(), static_cast<long long>(rank),
       missing.c_str(), static_cast<long long>(deadline.count()));
}

//===----------------------------------------------------------------------===//
// The C ABI
//===----------------------------------------------------------------------===//

/// The handle.
struct StepcSimulatedWorld {
  SimulatedWorld world;
};

static void requireRank(const StepcSimulatedWorld *world, int64_t rank) {
  requireNotNull(world, "world");
  int64_t numRanks = world->world.getNumRanks();
  if (rank < 0 || rank >= numRanks)
    fail(STEPC_INVALID_ARGUMENT, "rank %lld does not exist, the world has %lld",
         static_cast<long long>(rank), static_cast<long long>(numRanks));
}

static void requireNotNegative(int64_t value, const char *name) {
  if (value < 0)
    fail(STEPC_INVALID_ARGUMENT, "%s is %lld, which is negative", name,
         static_cast<long long>(value));
}

StepcStatus stepcSimulatedWorldCreate(const int64_t *axisSizes, int64_t numAxes,
                                      StepcSimulatedWorld **out) {
  return guarded([&] {
    requireNotNull(out, "out");
    *out = new StepcSimulatedWorld{{axisSizes, numAxes}};
  });
}

StepcStatus stepcSimulatedWorldGetCommunicator(StepcSimulatedWorld *world,
                                               int64_t rank,
                                               StepcCommunicator *out) {
  return guarded([&] {
    requireRank(world, rank);
    requireNotNull(out, "out");
    requireStructSize(out, kLeastCommunicator, sizeof(StepcCommunicator),
                      "StepcCommunicator");
    giveCommunicator(world->world.getCommunicator(rank), out->structSize, out);
  });
}

StepcStatus stepcSimulatedWorldSetDelay(StepcSimulatedWorld *world,
                                        int64_t microseconds) {
  return guarded([&] {
    requireNotNull(world, "world");
    requireNotNegative(microseconds, "the delay");
    world->world.setDelay(microseconds);
  });
}

StepcStatus stepcSimulatedWorldSetDeadline(StepcSimulatedWorld *world,
                                           int64_t milliseconds) {
  return guarded([&] {
    requireNotNull(world, "world");
    requireNotNegative(milliseconds, "the deadline");
    world->world.setDeadline(milliseconds);
  });
}

StepcStatus stepcSimulatedWorldGetCounters(const StepcSimulatedWorld *world,
                                           int64_t rank,
                                           StepcSimulatedCounters *out) {
  return guarded([&] {
    requireRank(world, rank);
    requireNotNull(out, "out");
    requireStructSize(out, sizeof(StepcSimulatedCounters),
                      "StepcSimulatedCounters");
    size_t size = out->structSize;
    *out = world->world.getCounters(rank);
    out->structSize = size;
  });
}

void stepcSimulatedWorldDestroy(StepcSimulatedWorld *world) { delete world; }
