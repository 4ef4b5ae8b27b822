//===- SimulatedRanks.cpp - the ranks of a simulated world ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/SimulatedRanks.h"

#include <thread>

#include "gtest/gtest.h"

StepcSimulatedWorld *makeSimulatedRanks(
    const std::vector<int64_t> &sizes,
    const std::function<void(const std::vector<StepcAxis> &,
                             const StepcCommunicator &)> &visit) {
  static const char *const names[] = {"a", "b", "c", "d"};
  StepcSimulatedWorld *world = nullptr;
  EXPECT_EQ(STEPC_OK, stepcSimulatedWorldCreate(sizes.data(),
                                                int64_t(sizes.size()), &world));
  int64_t numRanks = 1;
  for (int64_t size : sizes)
    numRanks *= size;
  for (int64_t r = 0; r < numRanks; ++r) {
    StepcCommunicator communicator = {};
    communicator.structSize = sizeof(communicator);
    EXPECT_EQ(STEPC_OK,
              stepcSimulatedWorldGetCommunicator(world, r, &communicator));
    std::vector<StepcAxis> axes(sizes.size());
    int64_t rest = r;
    for (size_t k = sizes.size(); k-- > 0;) {
      axes[k] = {names[k], sizes[k], rest % sizes[k]};
      rest /= sizes[k];
    }
    visit(axes, communicator);
  }
  return world;
}

void inThreads(int64_t count, const std::function<void(int64_t)> &visit) {
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < count; ++rank)
    threads.emplace_back(visit, rank);
  for (std::thread &thread : threads)
    thread.join();
}
