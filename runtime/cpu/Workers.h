//===- Workers.h - runs steps on the threads of the processor -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One step is one parallel region, however many tensors, variants and segments
// it has. In each segment the workers first take the large rows together, each
// its own contiguous share of a kernel's chunks; then what is left, chunks and
// batches of rows, forms one line, measured by weight (about bytes), of which
// worker w of n runs what has its middle in the w-th n-th. The split is static,
// and no result depends on it.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_WORKERS_H
#define STEPC_CPU_WORKERS_H

#include "cpu/Work.h"

#include <cstdint>

namespace stepc::cpu {

class Workers {
public:
  /// `numThreads` 0: what OpenMP says at each run.
  explicit Workers(int numThreads);

  /// Starts the threads, so that no step has to.
  void startThreads() noexcept;

  /// How many workers a run would have now.
  int getTeamSize() const;

  /// Runs all segments with the rounds between them; false when something
  /// threw, the rest being left undone.
  bool run(const StepWork &work, RoundRunner &rounds) noexcept;

  /// Runs share(context, index, count) for each index below `count`.
  void runShares(int64_t bytes, void (*share)(void *, int, int),
                 void *context) noexcept;

  int64_t getNumRegions() const { return numRegions; }

private:
  int numThreads;
  int64_t numRegions = 0;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_WORKERS_H
