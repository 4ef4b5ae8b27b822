//===- World.h - processes of MPI on the places of a grid -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_MPI_WORLD_H
#define STEPC_MPI_WORLD_H

#include "comm/Deadline.h"
#include "comm/Grid.h"
#include "stepc/mpi.h"

#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace stepc::mpi {

/// What is told to the caller: lower-case, without a final period.
struct Error : std::runtime_error {
  Error(StepcStatus status, const std::string &message)
      : std::runtime_error(message), status(status) {}
  StepcStatus status;
};

/// Refuses what an MPI function returned. `what`: the function, and about what.
void require(int result, const std::string &what);

/// The ranks that differ in some axes alone.
struct Group {
  /// Transfers that it has started.
  int64_t numTransfers = 0;
  MPI_Comm comm = MPI_COMM_NULL;
  int size = 1;
  int rank = 0;
};

class Exchange;
class Transfer;

class World {
public:
  World(const int64_t *axisSizes, int64_t numAxes, int64_t deadlineMs);

  int64_t getRank() const { return rank; }
  StepcCommunicator getCommunicator();
  /// Makes the calls of a round; throws Error.
  void reduce(const StepcReduceCall *calls, int64_t numCalls);
  /// Starts a transfer, and waits for it; throw Error.
  std::unique_ptr<Transfer> start(const StepcTransfer &transfer);
  void finish(std::unique_ptr<Transfer> transfer);
  ~World();
  /// Gives back what MPI has. False where requests are under way for good.
  bool release();

private:
  void placeAxes(const int64_t *axisSizes, int64_t numAxes);
  void makeGroups();
  Group &getGroup(uint64_t axes);
  void finish(std::vector<MPI_Request> &requests,
              const std::vector<std::unique_ptr<Exchange>> &exchanges,
              const Deadline &deadline);

  MPI_Comm world = MPI_COMM_NULL;
  int rank = 0;
  Grid grid;
  std::map<uint64_t, Group> groups;
  /// This rank, over axes of one rank.
  Group alone;
  /// How long a round may take.
  std::chrono::milliseconds length;
  /// What went wrong first; "": nothing did.
  std::string failure;
  /// What MPI may still read and write after a round that did not end.
  std::vector<std::unique_ptr<Exchange>> abandoned;
  std::vector<std::unique_ptr<Transfer>> abandonedTransfers;
  /// How many transfers have been started and not finished.
  size_t underWay = 0;
};

} // namespace stepc::mpi

#endif // STEPC_MPI_WORLD_H
