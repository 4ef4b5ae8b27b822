//===- World.cpp - processes of MPI on the places of a grid ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mpi/World.h"

#include "mpi/Exchange.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <thread>

using namespace stepc::mpi;

/// Groups are made ahead, one for each set of these: making one waits for
/// others without a deadline.
static constexpr int kMaxWideAxes = 6;
static constexpr int64_t kMaxAxes = 64;
/// A year, so that sums of times do not overflow.
static constexpr int64_t kMostMs = int64_t(365) * 24 * 3600 * 1000;

void stepc::mpi::require(int result, const std::string &what) {
  if (result == MPI_SUCCESS)
    return;
  char words[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, words, &length);
  throw Error(STEPC_COMMUNICATION_ERROR,
              what + ": " + std::string(words, size_t(length)));
}

World::World(const int64_t *axisSizes, int64_t numAxes, int64_t deadlineMs)
    : deadline(std::min(deadlineMs, kMostMs)) {
  int begun = 0, over = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&over);
  if (!begun || over)
    throw Error(STEPC_WRONG_STATE, begun ? "MPI is finalized already"
                                         : "MPI is not initialized yet");
  if (deadlineMs < 1)
    throw Error(STEPC_INVALID_ARGUMENT, "the deadline is " +
                                            std::to_string(deadlineMs) +
                                            " ms, the least is 1");
  placeAxes(axisSizes, numAxes);
  try {
    makeGroups();
  } catch (...) {
    release();
    throw;
  }
}

void World::placeAxes(const int64_t *axisSizes, int64_t numAxes) {
  if (numAxes < 0 || numAxes > kMaxAxes || (numAxes > 0 && !axisSizes))
    throw Error(STEPC_INVALID_ARGUMENT, std::to_string(numAxes) +
                                            " axes were given, the most are " +
                                            std::to_string(kMaxAxes));
  int numRanks = 0;
  require(MPI_Comm_size(MPI_COMM_WORLD, &numRanks), "MPI_Comm_size");
  sizes.assign(axisSizes, axisSizes + numAxes);
  strides.resize(size_t(numAxes));
  int64_t places = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] < 1 || sizes[i] > numRanks)
      throw Error(STEPC_INVALID_ARGUMENT,
                  "axis " + std::to_string(i) + " has size " +
                      std::to_string(sizes[i]) + ", expected 1 to " +
                      std::to_string(numRanks));
    strides[i] = places;
    places *= sizes[i];
    wide |= uint64_t(sizes[i] > 1) << i;
  }
  if (places != numRanks)
    throw Error(STEPC_INVALID_ARGUMENT,
                "the grid has " + std::to_string(places) + " places, MPI has " +
                    std::to_string(numRanks) + " processes");
  if (__builtin_popcountll(wide) > kMaxWideAxes)
    throw Error(STEPC_INVALID_ARGUMENT,
                std::to_string(__builtin_popcountll(wide)) +
                    " axes are larger than 1, the most are " +
                    std::to_string(kMaxWideAxes));
}

void World::makeGroups() {
  require(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  // Errors come back as values, where MPI can tell of them at all.
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  require(MPI_Comm_rank(world, &rank), "MPI_Comm_rank");
  int numRanks = 0;
  require(MPI_Comm_size(world, &numRanks), "MPI_Comm_size");
  // All subsets of the wide axes, in the same order on all ranks.
  for (uint64_t axes = wide; axes != 0; axes = (axes - 1) & wide) {
    // What the other axes say is the group.
    auto color = [&](int of) {
      int64_t found = 0;
      for (size_t i = 0; i < sizes.size(); ++i)
        if (!(axes >> i & 1))
          found += of / strides[i] % sizes[i] * strides[i];
      return int(found);
    };
    Group &group = groups[axes];
    for (int other = 0; other < numRanks; ++other)
      if (color(other) == color(rank)) {
        if (other == rank)
          group.rank = int(group.ranks.size());
        group.ranks.push_back(other);
      }
    group.size = int(group.ranks.size());
    require(MPI_Comm_split(world, color(rank), rank, &group.comm),
            "MPI_Comm_split");
    MPI_Comm_set_errhandler(group.comm, MPI_ERRORS_RETURN);
  }
}

bool World::release() {
  if (!abandoned.empty())
    return false;
  int over = 0;
  MPI_Finalized(&over);
  for (auto &[axes, group] : groups)
    if (!over && group.comm != MPI_COMM_NULL)
      MPI_Comm_free(&group.comm);
  groups.clear();
  if (!over && world != MPI_COMM_NULL)
    MPI_Comm_free(&world);
  return true;
}

const Group &World::getGroup(uint64_t axes) const {
  static const Group alone;
  if ((axes & wide) == 0)
    return alone;
  return groups.at(axes & wide);
}

void World::reduce(const StepcReduceCall *calls, int64_t numCalls) {
  if (!failure.empty())
    throw Error(STEPC_COMMUNICATION_ERROR, failure);
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (int64_t i = 0; i < numCalls; ++i) {
    const Group &group = getGroup(calls[i].axes);
    if (group.size > 1 && calls[i].count > 0)
      exchanges.push_back(std::make_unique<Exchange>(calls[i], group));
  }
  std::vector<MPI_Request> requests(exchanges.size(), MPI_REQUEST_NULL);
  // From the first request on memory may be MPI's: what goes wrong needs none.
  abandoned.reserve(exchanges.size());
  auto end = std::chrono::steady_clock::now() + deadline;
  try {
    for (size_t i = 0; i < exchanges.size(); ++i)
      requests[i] = exchanges[i]->begin();
    finish(requests, exchanges, end);
    std::fill(requests.begin(), requests.end(), MPI_REQUEST_NULL);
    for (size_t i = 0; i < exchanges.size(); ++i)
      if (exchanges[i]->hasSecond())
        requests[i] = exchanges[i]->beginSecond();
    finish(requests, exchanges, end);
  } catch (const std::exception &error) {
    for (auto &exchange : exchanges)
      abandoned.push_back(std::move(exchange));
    failure = error.what();
    throw;
  }
  for (auto &exchange : exchanges)
    exchange->end();
}

void World::finish(std::vector<MPI_Request> &requests,
                   const std::vector<std::unique_ptr<Exchange>> &exchanges,
                   std::chrono::steady_clock::time_point end) {
  auto begin = std::chrono::steady_clock::now();
  while (true) {
    int done = 0;
    require(MPI_Testall(int(requests.size()), requests.data(), &done,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
    if (done)
      return;
    auto now = std::chrono::steady_clock::now();
    if (now > end)
      break;
    // Mostly the others come at once; who waits for long leaves them the cores.
    if (now - begin > std::chrono::milliseconds(1))
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    else
      std::this_thread::yield();
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    int done = 0;
    if (requests[i] == MPI_REQUEST_NULL ||
        (MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
         done))
      continue;
    throw Error(STEPC_COMMUNICATION_ERROR,
                "rank " + std::to_string(rank) + ": " +
                    exchanges[i]->describe() + " did not end within " +
                    std::to_string(deadline.count()) + " ms");
  }
}

StepcCommunicator World::getCommunicator() {
  StepcCommunicator communicator = {};
  communicator.structSize = sizeof(communicator);
  communicator.context = this;
  communicator.reduce = [](void *context, const StepcReduceCall *calls,
                           int64_t numCalls, char *message,
                           size_t messageSize) -> int32_t {
    try {
      static_cast<World *>(context)->reduce(calls, numCalls);
      return 0;
    } catch (const std::exception &error) {
      std::snprintf(message, messageSize, "%s", error.what());
      return 1;
    }
  };
  return communicator;
}

//===----------------------------------------------------------------------===//
// The C ABI
//===----------------------------------------------------------------------===//

struct StepcMpiWorld {
  World world;
};

StepcStatus stepcMpiWorldCreate(const int64_t *axisSizes, int64_t numAxes,
                                int64_t deadlineMs, StepcMpiWorld **out,
                                char *message, size_t messageSize) {
  auto refuse = [&](StepcStatus status, const char *words) {
    if (message)
      std::snprintf(message, messageSize, "%s", words);
    return status;
  };
  if (!out)
    return refuse(STEPC_INVALID_ARGUMENT, "out is NULL");
  try {
    *out = new StepcMpiWorld{{axisSizes, numAxes, deadlineMs}};
    return STEPC_OK;
  } catch (const Error &error) {
    return refuse(error.status, error.what());
  } catch (const std::bad_alloc &) {
    return refuse(STEPC_OUT_OF_MEMORY, "out of memory");
  }
}

int64_t stepcMpiWorldGetRank(const StepcMpiWorld *world) {
  return world->world.getRank();
}

StepcCommunicator stepcMpiWorldGetCommunicator(StepcMpiWorld *world) {
  return world->world.getCommunicator();
}

void stepcMpiWorldDestroy(StepcMpiWorld *world) {
  // What MPI may still write stays where it is.
  if (world && world->world.release())
    delete world;
}
