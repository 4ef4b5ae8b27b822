//===- Reduction.h - one reduction of processes that share memory ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_SHM_REDUCTION_H
#define STEPC_SHM_REDUCTION_H

#include "shm/Group.h"

namespace stepc::shm {

/// An all-reduce in the order of the ranks. Few elements are gathered
/// everywhere and reduced there; of many each rank reduces a part, which all
/// then gather.
class Reduction {
public:
  Reduction(const StepcReduceCall &call, Group &group);

  /// One after the other, each of all reductions of a round before the next.
  void begin();
  void beginSecond();
  void end();
  /// The exchange that is under way; none where the phase has none.
  std::unique_ptr<Exchange> exchange;

private:
  int64_t getBegin(int64_t rank) const;
  std::unique_ptr<Exchange> start(int32_t kind, const void *send, void *receive,
                                  const int64_t *sendBytes,
                                  const int64_t *receiveBytes);

  const StepcReduceCall call;
  Group &group;
  /// Whether all elements go everywhere.
  bool whole;
  std::vector<int64_t> received, bytes;
};

} // namespace stepc::shm

#endif // STEPC_SHM_REDUCTION_H
