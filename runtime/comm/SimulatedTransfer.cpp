//===- SimulatedTransfer.cpp - transfers of ranks that are threads --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/Simulated.h"

#include "comm/CallCheck.h"
#include "comm/Describe.h"
#include "core/Status.h"

#include <algorithm>
#include <cstring>
#include <thread>

using namespace stepc;

struct SimulatedWorld::Work {
  int64_t rank;
  FlightPtr flight;
};

/// The bytes that one member has for another.
int64_t SimulatedWorld::Flight::getSent(size_t from, size_t to) const {
  const Share &share = shares[from];
  return share.kind == STEPC_ALL_TO_ALL ? share.sendBytes[to]
                                        : share.receiveBytes[from];
}

/// Leaves the rank's share at the first transfer that waits for it.
SimulatedWorld::FlightPtr SimulatedWorld::join(int64_t rank,
                                               const StepcTransfer &transfer) {
  std::vector<int64_t> members = grid.getMembers(rank, transfer.axes);
  std::string fault =
      findTransferFault(transfer, members.size(), grid.getNumAxes());
  if (!fault.empty())
    fail(STEPC_COMMUNICATION_ERROR, "rank %lld: %s",
         static_cast<long long>(rank), fault.c_str());
  auto own =
      size_t(std::find(members.begin(), members.end(), rank) - members.begin());
  std::deque<FlightPtr> &list = flights[{transfer.axes, members.front()}];
  auto at = std::find_if(list.begin(), list.end(), [&](const FlightPtr &each) {
    return !each->shares[own].here;
  });
  if (at == list.end()) {
    at = list.insert(at, std::make_shared<Flight>());
    (*at)->axes = transfer.axes;
    (*at)->members = members;
    (*at)->shares.resize(members.size());
  }
  FlightPtr flight = *at;
  Share &share = flight->shares[own];
  share.here = true;
  share.kind = transfer.kind;
  share.send = static_cast<const char *>(transfer.send);
  share.receive = static_cast<char *>(transfer.receive);
  share.receiveBytes.assign(transfer.receiveBytes,
                            transfer.receiveBytes + members.size());
  if (transfer.kind == STEPC_ALL_TO_ALL)
    share.sendBytes.assign(transfer.sendBytes,
                           transfer.sendBytes + members.size());
  StepcSimulatedCounters &counters = ranks[size_t(rank)].counters;
  ++counters.calls;
  for (size_t other = 0; other < members.size(); ++other)
    counters.bytes += other == own ? 0 : flight->getSent(own, other);
  if (++flight->started == members.size())
    list.erase(at);
  return flight;
}

void SimulatedWorld::requireSame(const Flight &flight) const {
  auto getMember = [&](size_t i) {
    return static_cast<long long>(flight.members[i]);
  };
  std::string place = "transfer over " + describeAxes(flight.axes);
  for (size_t i = 1; i < flight.members.size(); ++i)
    if (flight.shares[i].kind != flight.shares[0].kind)
      fail(STEPC_COMMUNICATION_ERROR, "%s: rank %lld has %s, rank %lld has %s",
           place.c_str(), getMember(i), getTransferName(flight.shares[i].kind),
           getMember(0), getTransferName(flight.shares[0].kind));
  for (size_t from = 0; from < flight.members.size(); ++from)
    for (size_t to = 0; to < flight.members.size(); ++to) {
      int64_t sent = flight.getSent(from, to);
      int64_t expected = flight.shares[to].receiveBytes[from];
      if (sent != expected)
        fail(STEPC_COMMUNICATION_ERROR,
             "%s: rank %lld has %lld bytes for rank %lld, which expects %lld",
             place.c_str(), getMember(from), static_cast<long long>(sent),
             getMember(to), static_cast<long long>(expected));
    }
}

void SimulatedWorld::move(const Flight &flight) {
  for (size_t from = 0; from < flight.members.size(); ++from) {
    const char *source = flight.shares[from].send;
    for (size_t to = 0; to < flight.members.size(); ++to) {
      const Share &target = flight.shares[to];
      char *place = target.receive;
      for (size_t before = 0; before < from; ++before)
        place += target.receiveBytes[before];
      int64_t bytes = flight.getSent(from, to);
      // Of an all_gather it may be there already.
      if (bytes > 0 && place != source)
        std::memmove(place, source, size_t(bytes));
      if (target.kind == STEPC_ALL_TO_ALL)
        source += bytes;
    }
  }
}

std::unique_ptr<SimulatedWorld::Work>
SimulatedWorld::start(int64_t rank, const StepcTransfer &transfer) {
  std::lock_guard<std::mutex> lock(mutex);
  auto work = std::make_unique<Work>();
  work->rank = rank;
  telling([&] {
    work->flight = join(rank, transfer);
    Flight &flight = *work->flight;
    if (flight.started < flight.members.size())
      return;
    requireSame(flight);
    move(flight);
    flight.landed = std::chrono::steady_clock::now() + delay;
    flight.done = true;
    changed.notify_all();
  });
  return work;
}

void SimulatedWorld::finish(std::unique_ptr<Work> work) {
  std::unique_lock<std::mutex> lock(mutex);
  const Flight &flight = *work->flight;
  telling([&] {
    bool woken =
        changed.wait_until(lock, std::chrono::steady_clock::now() + deadline,
                           [&] { return flight.done || !failure.empty(); });
    if (flight.done)
      return;
    if (woken)
      requireSound();
    std::string missing;
    for (size_t m = 0; m < flight.members.size(); ++m)
      if (!flight.shares[m].here)
        missing +=
            (missing.empty() ? "" : ", ") + std::to_string(flight.members[m]);
    fail(STEPC_COMMUNICATION_ERROR,
         "transfer over %s of rank %lld: not started by rank %s within %lld ms",
         describeAxes(flight.axes).c_str(), static_cast<long long>(work->rank),
         missing.c_str(), static_cast<long long>(deadline.count()));
  });
  auto landed = flight.landed;
  lock.unlock();
  std::this_thread::sleep_until(landed);
}
