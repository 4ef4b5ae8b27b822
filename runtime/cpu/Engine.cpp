//===- Engine.cpp - runs kernels on the threads of the processor ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/Engine.h"

#include "cpu/FloatMode.h"

#include <algorithm>
#include <omp.h>
#include <sys/types.h>
#include <unistd.h>

using namespace stepc;

namespace {

/// Work below this weight is done by the caller: waking a thread costs as much
/// as moving this many bytes.
constexpr int64_t kSerialWeight = 256 * 1024;

/// The process that loaded the library, in which OpenMP's threads can be used.
/// They do not survive fork(), and libgomp would wait for them for ever,
/// whoever started them: the library's plans, or torch.
const pid_t loadingProcess = getpid();

/// The number of chunks whose middle lies before `limit`.
int64_t countBefore(const KernelWork &work, int64_t limit) {
  return std::lower_bound(work.middles, work.middles + work.numChunks, limit) -
         work.middles;
}

/// The weight where the share of worker `index` of `count` begins.
int64_t getShareBegin(int64_t weight, int index, int count) {
  return int64_t(static_cast<__int128>(weight) * index / count);
}

/// Runs the share of one worker; false when a kernel threw.
bool runShare(const KernelWork *work, int64_t size, int64_t weight, int index,
              int count) noexcept {
  FloatMode mode;
  int64_t begin = getShareBegin(weight, index, count);
  int64_t end = getShareBegin(weight, index + 1, count);
  try {
    for (int64_t i = 0; i < size; ++i) {
      int64_t first = index == 0 ? 0 : countBefore(work[i], begin);
      int64_t last =
          index + 1 == count ? work[i].numChunks : countBefore(work[i], end);
      if (first < last)
        work[i].kernel(&work[i].call, first, last);
    }
    return true;
  } catch (...) {
    return false;
  }
}

} // namespace

Engine::Engine(int numThreads) : numThreads(numThreads) {}

int Engine::getTeamSize() const {
  if (getpid() != loadingProcess)
    return 1;
  return numThreads > 0 ? numThreads : omp_get_max_threads();
}

void Engine::startThreads() noexcept {
  int team = getTeamSize();
  if (team == 1)
    return;
  std::atomic<int> started{0};
#pragma omp parallel num_threads(team)
  started.fetch_add(1, std::memory_order_relaxed);
}

bool Engine::run(const KernelWork *work, int64_t size,
                 int64_t weight) noexcept {
  int team = weight < kSerialWeight ? 1 : getTeamSize();
  // Not even a region of one: libgomp may allocate for it.
  if (team == 1)
    return runShare(work, size, weight, 0, 1);

  ++numRegions;
  std::atomic<bool> good{true};
#pragma omp parallel num_threads(team)
  {
    // The team may be smaller than asked for, as inside another region.
    if (!runShare(work, size, weight, omp_get_thread_num(),
                  omp_get_num_threads()))
      good.store(false, std::memory_order_relaxed);
  }
  return good.load(std::memory_order_relaxed);
}
