//===- Workers.cpp - runs kernels on the threads of the processor ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/Workers.h"

#include "core/Fault.h"
#include "core/FloatMode.h"
#include "cpu/Team.h"
#include "cpu/TeamLimit.h"
#include "cpu/Worker.h"

#include <algorithm>
#include <omp.h>
#include <sys/types.h>
#include <unistd.h>

using namespace stepc;
using namespace stepc::cpu;

namespace {

/// Work below this weight is done by the caller: waking a thread costs as much
/// as moving this many bytes.
constexpr int64_t kSerialWeight = 256 * 1024;

/// The process that loaded the library, in which OpenMP's threads can be used.
/// They do not survive fork(), and libgomp would wait for them for ever,
/// whoever started them: the library's plans, or torch.
const pid_t loadingProcess = getpid();

/// Runs the share of one worker.
void runShare(const StepWork &work, RoundRunner &rounds, Team &team, int index,
              int count) noexcept {
  FloatMode mode;
  try {
    Worker(work, rounds, team, index, count).run();
  } catch (...) {
    team.fail();
  }
}

} // namespace

Workers::Workers(int numThreads) : numThreads(numThreads) {}

int Workers::getTeamSize() const {
  if (getpid() != loadingProcess || STEPC_FAULT("control-one-worker"))
    return 1;
  return numThreads > 0 ? numThreads : omp_get_max_threads();
}

void Workers::startThreads() noexcept {
  int team = limitTeam(getTeamSize(), /*tryAgain=*/true);
  if (team == 1)
    return;
  std::atomic<int> started{0};
#pragma omp parallel num_threads(team)
  started.fetch_add(1, std::memory_order_relaxed);
}

bool Workers::run(const StepWork &work, RoundRunner &rounds) noexcept {
  int size = work.weight < kSerialWeight ? 1 : getTeamSize();
  if (work.workspace.numWorkers > 0)
    size = int(std::min<int64_t>(size, work.workspace.numWorkers));
  size = limitTeam(size, /*tryAgain=*/false);
  Team team;
  // Not even a region of one: libgomp may allocate for it.
  if (size == 1) {
    runShare(work, rounds, team, 0, 1);
    return !team.hasFailed();
  }

  ++numRegions;
#pragma omp parallel num_threads(size)
  {
    // The team may be smaller than asked for, as inside another region.
    int count = omp_get_num_threads();
    team.setSize(count);
    runShare(work, rounds, team, omp_get_thread_num(), count);
  }
  return !team.hasFailed();
}

void Workers::runShares(int64_t bytes, void (*share)(void *, int, int),
                        void *context) noexcept {
  int size = bytes < kSerialWeight ? 1 : getTeamSize();
  size = limitTeam(size, /*tryAgain=*/false);
  if (size == 1) {
    FloatMode mode;
    share(context, 0, 1);
    return;
  }
#pragma omp parallel num_threads(size)
  {
    FloatMode mode;
    share(context, omp_get_thread_num(), omp_get_num_threads());
  }
}
