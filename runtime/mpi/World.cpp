//===- World.cpp - processes of MPI on the places of a grid ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mpi/World.h"

#include "comm/CallCheck.h"
#include "comm/Tell.h"
#include "core/GiveCommunicator.h"
#include "mpi/Exchange.h"
#include "mpi/Transfer.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>

using namespace stepc;
using namespace stepc::mpi;

/// Groups are made ahead, one for each set of these: making one waits for
/// others without a deadline.
static constexpr int kMaxWideAxes = 6;
static constexpr int64_t kMaxAxes = 64;

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
    : length(std::min(deadlineMs, kMostMilliseconds)) {
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
  if (numAxes > 0 && !axisSizes)
    throw Error(STEPC_INVALID_ARGUMENT,
                std::to_string(numAxes) + " axes were given, without sizes");
  if (numAxes < 0 || numAxes > kMaxAxes)
    throw Error(STEPC_INVALID_ARGUMENT, std::to_string(numAxes) +
                                            " axes were given, the most are " +
                                            std::to_string(kMaxAxes));
  int numRanks = 0;
  require(MPI_Comm_size(MPI_COMM_WORLD, &numRanks), "MPI_Comm_size");
  int64_t places = 1;
  for (int64_t i = numAxes; i-- > 0;) {
    if (axisSizes[i] < 1 || axisSizes[i] > numRanks)
      throw Error(STEPC_INVALID_ARGUMENT,
                  "axis " + std::to_string(i) + " has size " +
                      std::to_string(axisSizes[i]) + ", expected 1 to " +
                      std::to_string(numRanks));
    if (axisSizes[i] > numRanks / places)
      throw Error(STEPC_INVALID_ARGUMENT,
                  "the grid has more places than MPI's " +
                      std::to_string(numRanks) + " processes");
    places *= axisSizes[i];
  }
  if (places != numRanks)
    throw Error(STEPC_INVALID_ARGUMENT,
                "the grid has " + std::to_string(places) + " places, MPI has " +
                    std::to_string(numRanks) + " processes");
  grid = Grid({axisSizes, axisSizes + numAxes});
  int wide = __builtin_popcountll(grid.getWideAxes());
  if (wide > kMaxWideAxes)
    throw Error(STEPC_INVALID_ARGUMENT,
                std::to_string(wide) +
                    " axes are larger than 1, the most are " +
                    std::to_string(kMaxWideAxes));
}

void World::makeGroups() {
  require(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  // Errors come back as values, where MPI can tell of them at all.
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  require(MPI_Comm_rank(world, &rank), "MPI_Comm_rank");
  // All subsets of the wide axes, in the same order on all ranks.
  uint64_t wide = grid.getWideAxes();
  for (uint64_t axes = wide; axes != 0; axes = (axes - 1) & wide) {
    std::vector<int64_t> members = grid.getMembers(rank, axes);
    Group &group = groups[axes];
    group.size = int(members.size());
    group.rank =
        int(std::find(members.begin(), members.end(), rank) - members.begin());
    require(MPI_Comm_split(world, int(members.front()), rank, &group.comm),
            "MPI_Comm_split");
    MPI_Comm_set_errhandler(group.comm, MPI_ERRORS_RETURN);
  }
}

bool World::release() {
  if (!abandoned.empty() || !abandonedTransfers.empty())
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

Group &World::getGroup(uint64_t axes) {
  axes &= grid.getWideAxes();
  return axes ? groups.at(axes) : alone;
}

void World::reduce(const StepcReduceCall *calls, int64_t numCalls) {
  if (!failure.empty())
    throw Error(STEPC_COMMUNICATION_ERROR, failure);
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (int64_t i = 0; i < numCalls; ++i) {
    std::string fault = findCallFault(calls[i], i, grid.getNumAxes());
    if (!fault.empty())
      throw Error(STEPC_COMMUNICATION_ERROR,
                  "rank " + std::to_string(rank) + ": " + fault);
    const Group &group = getGroup(calls[i].axes);
    if (group.size > 1 && calls[i].count > 0)
      exchanges.push_back(std::make_unique<Exchange>(calls[i], group));
  }
  std::vector<MPI_Request> requests(exchanges.size(), MPI_REQUEST_NULL);
  // From the first request on memory may be MPI's: what goes wrong needs none.
  abandoned.reserve(exchanges.size());
  Deadline deadline(length);
  try {
    for (size_t i = 0; i < exchanges.size(); ++i)
      requests[i] = exchanges[i]->begin();
    finish(requests, exchanges, deadline);
    std::fill(requests.begin(), requests.end(), MPI_REQUEST_NULL);
    for (size_t i = 0; i < exchanges.size(); ++i)
      if (exchanges[i]->hasSecond())
        requests[i] = exchanges[i]->beginSecond();
    finish(requests, exchanges, deadline);
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
                   const Deadline &deadline) {
  while (true) {
    int done = 0;
    require(MPI_Testall(int(requests.size()), requests.data(), &done,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
    if (done)
      return;
    if (deadline.isOver())
      break;
    deadline.pause();
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
                    std::to_string(length.count()) + " ms");
  }
}

World::~World() = default;

std::unique_ptr<Transfer> World::start(const StepcTransfer &given) {
  if (!failure.empty())
    throw Error(STEPC_COMMUNICATION_ERROR, failure);
  Group &group = getGroup(given.axes);
  std::string fault =
      findTransferFault(given, size_t(group.size), grid.getNumAxes());
  if (!fault.empty())
    throw Error(STEPC_COMMUNICATION_ERROR,
                "rank " + std::to_string(rank) + ": " + fault);
  auto made = std::make_unique<Transfer>(given, group, group.numTransfers++);
  // From the first request on memory may be MPI's: what goes wrong needs none.
  abandonedTransfers.reserve(underWay + 1);
  try {
    made->begin();
  } catch (const std::exception &error) {
    failure = error.what();
    abandonedTransfers.push_back(std::move(made));
    throw;
  }
  ++underWay;
  return made;
}

void World::finish(std::unique_ptr<Transfer> transfer) {
  Deadline deadline(length);
  try {
    while (failure.empty() && !transfer->test()) {
      if (deadline.isOver())
        throw Error(STEPC_COMMUNICATION_ERROR,
                    "rank " + std::to_string(rank) + ": " +
                        transfer->describe() + " did not end within " +
                        std::to_string(length.count()) + " ms");
      deadline.pause();
    }
    if (failure.empty()) {
      --underWay;
      return;
    }
    throw Error(STEPC_COMMUNICATION_ERROR, failure);
  } catch (const std::exception &error) {
    if (failure.empty())
      failure = error.what();
    transfer->cancel();
    abandonedTransfers.push_back(std::move(transfer));
    throw;
  }
}

StepcCommunicator World::getCommunicator() {
  StepcCommunicator communicator = {};
  communicator.structSize = sizeof(communicator);
  communicator.context = this;
  communicator.reduce = [](void *context, const StepcReduceCall *calls,
                           int64_t numCalls, char *message,
                           size_t messageSize) -> int32_t {
    return tell(message, messageSize, [&] {
      static_cast<World *>(context)->reduce(calls, numCalls);
    });
  };
  communicator.start = [](void *context, const StepcTransfer *transfer,
                          void **outWork, char *message,
                          size_t messageSize) -> int32_t {
    return tell(message, messageSize, [&] {
      *outWork = static_cast<World *>(context)->start(*transfer).release();
    });
  };
  communicator.finish = [](void *context, void *work, char *message,
                           size_t messageSize) -> int32_t {
    return tell(message, messageSize, [&] {
      static_cast<World *>(context)->finish(
          std::unique_ptr<Transfer>(static_cast<Transfer *>(work)));
    });
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

StepcStatus stepcMpiWorldGetCommunicator(StepcMpiWorld *world,
                                         StepcCommunicator *out) {
  if (!world || !out || out->structSize < kLeastCommunicator)
    return STEPC_INVALID_ARGUMENT;
  giveCommunicator(world->world.getCommunicator(), out->structSize, out);
  return STEPC_OK;
}

void stepcMpiWorldDestroy(StepcMpiWorld *world) {
  // What MPI may still write stays where it is.
  if (world && world->world.release())
    delete world;
}
