//===- Exchange.h - one reduction over a group of processes ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_MPI_EXCHANGE_H
#define STEPC_MPI_EXCHANGE_H

#include "mpi/World.h"

namespace stepc::mpi {

/// All-reduce in the order of the ranks: MPI's own may add in any, and need not
/// give all ranks the same bits. Few elements are gathered everywhere and
/// reduced there; of many each rank reduces a part, which all then gather.
///
/// MPI reads and writes memory of this object alone, so a round that is given
/// up leaves nothing of the caller's in its hands.
class Exchange {
public:
  Exchange(const StepcReduceCall &call, const Group &group);

  /// Begin one phase after the other; the second is of many elements only.
  MPI_Request begin();
  MPI_Request beginSecond();
  bool hasSecond() const { return !whole; }
  /// Gives the caller the results.
  void end();
  /// "sum of f64 of 12 elements over axes [0, 2]"
  std::string describe() const;

private:
  /// Where the part of a rank begins.
  int64_t getBegin(int rank) const;

  const StepcReduceCall call;
  const Group &group;
  /// Whether all elements go everywhere.
  bool whole;
  std::vector<int64_t> sent, received;
  std::vector<int> sendCounts, sendOffsets, receiveCounts, receiveOffsets;
};

} // namespace stepc::mpi

#endif // STEPC_MPI_EXCHANGE_H
