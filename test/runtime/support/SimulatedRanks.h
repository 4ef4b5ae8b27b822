//===- SimulatedRanks.h - the ranks of a simulated world ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_SIMULATEDRANKS_H
#define STEPC_TEST_SIMULATEDRANKS_H

#include "stepc/simulated.h"

#include <functional>
#include <vector>

/// Makes a world of axes of these sizes, called "a", "b" and so on, and visits
/// the places of its ranks in their order.
StepcSimulatedWorld *
makeSimulatedRanks(const std::vector<int64_t> &sizes,
                   const std::function<void(const std::vector<StepcAxis> &,
                                            const StepcCommunicator &)> &visit);

/// Visits ranks 0 to count - 1, each in a thread of its own, and waits for all.
void inThreads(int64_t count, const std::function<void(int64_t)> &visit);

#endif // STEPC_TEST_SIMULATEDRANKS_H
