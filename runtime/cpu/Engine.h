//===- Engine.h - runs kernels on the threads of the processor ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One step is one parallel region, however many tensors and variants it has.
// The chunks of all kernels form one line, measured by weight (about bytes);
// worker w of n runs the chunks whose middle lies in the w-th n-th of it. The
// split is static: no worker waits for another, and no result depends on it.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_ENGINE_H
#define STEPC_CPU_ENGINE_H

#include "stepc/kernel_abi.h"

#include <atomic>
#include <cstdint>

namespace stepc {

/// The chunks of one kernel.
struct KernelWork {
  StepcKernel kernel;
  StepcCall call;
  int64_t numChunks;
  /// For each chunk the weight of all work before its middle, ascending, also
  /// from one KernelWork to the next.
  const int64_t *middles;
};

class Engine {
public:
  /// `numThreads` 0: what OpenMP says at each run.
  explicit Engine(int numThreads);

  /// Starts the threads, so that no step has to.
  void startThreads() noexcept;

  /// Runs all work, of `weight` in total; false when a kernel threw, the rest
  /// of that worker's work being left undone.
  bool run(const KernelWork *work, int64_t size, int64_t weight) noexcept;

  int64_t getNumRegions() const { return numRegions; }

private:
  int getTeamSize() const;

  int numThreads;
  int64_t numRegions = 0;
};

} // namespace stepc

#endif // STEPC_CPU_ENGINE_H
