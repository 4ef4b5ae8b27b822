//===- Transfer.h - bytes that a group exchanges over MPI -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_MPI_TRANSFER_H
#define STEPC_MPI_TRANSFER_H

#include "mpi/World.h"

namespace stepc::mpi {

/// Messages between each two ranks, all under way together, from and to the
/// caller's memory: a piece may have more bytes than MPI counts, and a copy of
/// it would be as much again.
class Transfer {
public:
  /// `number`: how many the group has started before, so that what ranks start
  /// in another order does not meet.
  Transfer(const StepcTransfer &transfer, const Group &group, int64_t number);

  void begin();
  /// Whether all is done. Refuses other sizes than were expected.
  bool test();
  /// Gives up what has not been received. It may come all the same.
  void cancel() noexcept;
  /// "all_to_all of 40 bytes over axes [0]"
  std::string describe() const;

private:
  void addMessages(char *address, int64_t bytes, int other, bool sends);

  const StepcTransfer transfer;
  const Group &group;
  int tag;
  std::vector<int64_t> sendBytes, receiveBytes;
  std::vector<MPI_Request> requests;
  std::vector<MPI_Status> statuses;
  /// Of each request: what is to be received; -1: it sends.
  std::vector<int> expected;
};

} // namespace stepc::mpi

#endif // STEPC_MPI_TRANSFER_H
