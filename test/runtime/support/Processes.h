//===- Processes.h - ranks that are forked, for tests -----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_RUNTIME_SUPPORT_PROCESSES_H
#define STEPC_TEST_RUNTIME_SUPPORT_PROCESSES_H

#include "stepc/shared_memory.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace stepc_test {

/// A member of a group of processes, with its calls as functions that answer ""
/// or what went wrong.
class SharedRank {
public:
  SharedRank(StepcSharedGroup *group, int64_t rank, int64_t numRanks);
  ~SharedRank() { leave(); }
  SharedRank(const SharedRank &) = delete;

  std::string start(const StepcTransfer &transfer, void *&work);
  std::string finish(void *work);
  std::string run(const StepcTransfer &transfer);
  std::string reduce(std::vector<StepcReduceCall> calls);
  /// A gather of one number from each.
  std::string gather(int64_t value, std::vector<int64_t> &all);
  void setDeadline(int64_t milliseconds);
  void leave();

  const int64_t rank, numRanks;

private:
  StepcSharedGroup *group;
  StepcCommunicator calls = {};
};

using Body = std::function<std::string(SharedRank &)>;

/// What the body answers on each of so many forked ranks of one group, which
/// messages call 10, 11, ...; "signal 9" of one that was killed. A rank that
/// takes more than a minute is.
std::vector<std::string> runRanks(int64_t numRanks, const Body &body);

/// The same in two groups: the ranks of `groups[i]` are in that of index i. A
/// body gets the groups that it is in.
using GroupsBody = std::function<std::string(
    int64_t rank, std::vector<std::unique_ptr<SharedRank>> &own)>;
std::vector<std::string>
runInGroups(int64_t numRanks, const std::vector<std::vector<int64_t>> &groups,
            const GroupsBody &body);

} // namespace stepc_test

#endif // STEPC_TEST_RUNTIME_SUPPORT_PROCESSES_H
