//===- Team.h - workers that meet ---------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The workers of a parallel region meet at points that all of them pass. The
// last to arrive does what has to be done alone; the others wait, first
// spinning, for what is done there is mostly shorter than a sleep, then leaving
// the processor to others, for there may be fewer processors than workers.
// Where other ranks are waited for, which may need the processors, they sleep
// at last.
//
// When a worker fails all leave: none waits for one that will not come.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_TEAM_H
#define STEPC_CPU_TEAM_H

#include <atomic>
#include <cstdint>
#include <immintrin.h>
#include <sched.h>
#include <unistd.h>

namespace stepc::cpu {

class Team {
public:
  /// Called by all workers or none: how many there are is known only inside
  /// the region.
  void setSize(int workers) { size.store(workers, std::memory_order_relaxed); }

  /// All workers leave after the meeting; said by who is alone in one.
  void stop() { stopped = true; }
  bool hasStopped() const { return stopped; }

  void fail() { failed.store(true, std::memory_order_release); }
  bool hasFailed() const { return failed.load(std::memory_order_acquire); }

  enum class Wait { Awake, Sleeping };

  /// Waits until all workers are here and `alone` has run on one of them.
  /// False when a worker failed.
  template <typename Alone>
  bool meet(Alone &&alone, Wait wait = Wait::Awake) {
    int64_t generation = passed.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
        size.load(std::memory_order_relaxed)) {
      alone();
      arrived.store(0, std::memory_order_relaxed);
      passed.store(generation + 1, std::memory_order_release);
      return !hasFailed();
    }
    for (int spins = 0; passed.load(std::memory_order_acquire) == generation;) {
      if (hasFailed())
        return false;
      ++spins;
      if (spins < kSpins)
        _mm_pause();
      else if (wait == Wait::Awake || spins < kYields)
        sched_yield();
      else
        usleep(kSleep);
    }
    return !hasFailed();
  }

private:
  /// Some 10 microseconds.
  static constexpr int kSpins = 300;
  /// Some 100 microseconds more.
  static constexpr int kYields = 500;
  static constexpr int kSleep = 50;

  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<int64_t> passed{0};
  alignas(64) std::atomic<bool> failed{false};
  std::atomic<int> size{1};
  /// Read after the meeting in which it was written.
  bool stopped = false;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_TEAM_H
