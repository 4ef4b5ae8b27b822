//===- Simulated.h - ranks that are threads of one process --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_COMM_SIMULATED_H
#define STEPC_COMM_SIMULATED_H

#include "comm/Grid.h"
#include "stepc/simulated.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace stepc {

/// Ranks that meet in groups. A rank leaves its calls at the meeting of each
/// group that it calls, then waits for all of them; the last to come to a
/// meeting makes its calls for all members, who stand still meanwhile.
class SimulatedWorld {
public:
  SimulatedWorld(const int64_t *axisSizes, int64_t numAxes);

  int64_t getNumRanks() const { return int64_t(ranks.size()); }
  StepcCommunicator getCommunicator(int64_t rank);
  StepcSimulatedCounters getCounters(int64_t rank) const;
  void setDelay(int64_t microseconds);
  void setDeadline(int64_t milliseconds);

  /// Makes the calls of one rank. Throws Error with the words of whatever went
  /// wrong first in this world.
  void reduce(int64_t rank, const StepcReduceCall *calls, int64_t numCalls);

  // Transfers: a rank leaves what it sends and where it receives at the first
  // one of its group that it has not started; the last to start one makes it.

  /// What one rank finishes.
  struct Work;
  std::unique_ptr<Work> start(int64_t rank, const StepcTransfer &transfer);
  void finish(std::unique_ptr<Work> work);

private:
  struct Rank {
    SimulatedWorld *world = nullptr;
    int64_t index = 0;
    StepcSimulatedCounters counters = {};
  };

  using Calls = std::vector<StepcReduceCall>;

  /// Of a group, once for each round.
  struct Meeting {
    uint64_t axes = 0;
    std::vector<int64_t> members;
    /// Of each member; none as long as it has not come.
    std::vector<Calls> calls;
    size_t arrived = 0;
    bool done = false;
  };
  using MeetingPtr = std::shared_ptr<Meeting>;
  /// The axes, and the group's first rank.
  using GroupKey = std::pair<uint64_t, int64_t>;

  /// What a rank has to do with a transfer.
  struct Share {
    bool here = false;
    int32_t kind = 0;
    const char *send = nullptr;
    char *receive = nullptr;
    std::vector<int64_t> sendBytes, receiveBytes;
  };

  struct Flight {
    uint64_t axes = 0;
    std::vector<int64_t> members;
    std::vector<Share> shares;
    size_t started = 0;
    bool done = false;
    /// Since when it has been there, with the delay.
    std::chrono::steady_clock::time_point landed;

    int64_t getSent(size_t from, size_t to) const;
  };
  using FlightPtr = std::shared_ptr<Flight>;

  FlightPtr join(int64_t rank, const StepcTransfer &transfer);
  void requireSame(const Flight &flight) const;
  static void move(const Flight &flight);
  /// Runs `body`; what it throws all ranks are told.
  template <typename Body>
  void telling(Body &&body);

  MeetingPtr attend(int64_t rank, uint64_t axes, Calls calls);
  void requireSame(const Meeting &meeting) const;
  void requireDone(std::unique_lock<std::mutex> &lock, int64_t rank,
                   const Meeting &meeting,
                   std::chrono::steady_clock::time_point end);
  void requireSound() const;
  static void combine(Meeting &meeting);

  Grid grid;
  std::vector<Rank> ranks;

  mutable std::mutex mutex;
  std::condition_variable changed;
  /// The meetings that wait for somebody.
  std::map<GroupKey, MeetingPtr> open;
  /// The transfers that some have started and some have not, in their order.
  std::map<GroupKey, std::deque<FlightPtr>> flights;
  std::chrono::microseconds delay{0};
  std::chrono::milliseconds deadline{60000};
  /// What went wrong first; "": nothing did.
  std::string failure;
};

/// What went wrong first all calls answer.
template <typename Body>
void SimulatedWorld::telling(Body &&body) {
  try {
    requireSound();
    body();
  } catch (const std::exception &error) {
    // The others would wait for ever, and the first words say most.
    if (failure.empty())
      failure = error.what();
    changed.notify_all();
    requireSound();
  }
}

} // namespace stepc

#endif // STEPC_COMM_SIMULATED_H
