//===- TeamLimit.cpp - threads that can be started ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/TeamLimit.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <pthread.h>

using namespace stepc;
using namespace stepc::cpu;

namespace {

/// What a thread knows of its teams.
struct Known {
  int largest = 1;       ///< that could be had
  int refused = INT_MAX; ///< the smallest that could not
};

thread_local Known known;

/// The bytes of OMP_STACKSIZE, "SIZE" in KiB or with B, K, M or G behind it
/// (OpenMP 5.2, 21.2.7); 0 where it is not set, or not so. What libgomp does
/// not understand it does not take either.
size_t getStackBytes() {
  const char *text = std::getenv("OMP_STACKSIZE");
  if (!text)
    text = std::getenv("GOMP_STACKSIZE");
  if (!text)
    return 0;
  char *end = nullptr;
  unsigned long long size = std::strtoull(text, &end, 10);
  if (end == text)
    return 0;
  while (*end == ' ')
    ++end;
  int shift = 10;
  switch (*end) {
  case 'b':
  case 'B':
    shift = 0;
    break;
  case 'm':
  case 'M':
    shift = 20;
    break;
  case 'g':
  case 'G':
    shift = 30;
    break;
  default:
    break;
  }
  return size << shift >> shift == size ? size_t(size << shift) : 0;
}

/// Ends when it gets the lock, which the trial holds while it starts threads.
void *waitForEnd(void *lock) {
  std::lock_guard<std::mutex> guard(*static_cast<std::mutex *>(lock));
  return nullptr;
}

/// How many of `count` more threads can be there at once.
int tryThreads(int count) noexcept {
  constexpr int kMost = 4096; // numThreads is no more, nor OpenMP's by far
  static_assert(sizeof(pthread_t) * kMost <= 64 * 1024);
  pthread_t threads[kMost];
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes))
    return 0;
  if (size_t bytes = getStackBytes())
    pthread_attr_setstacksize(&attributes, bytes);
  std::mutex lock;
  int started = 0;
  {
    std::lock_guard<std::mutex> guard(lock);
    while (started < std::min(count, kMost) &&
           !pthread_create(&threads[started], &attributes, waitForEnd, &lock))
      ++started;
  }
  for (int i = 0; i < started; ++i)
    pthread_join(threads[i], nullptr);
  pthread_attr_destroy(&attributes);
  return started;
}

} // namespace

int stepc::cpu::limitTeam(int size, bool tryAgain) noexcept {
  if (tryAgain)
    known.refused = INT_MAX;
  if (size <= known.largest)
    return size;
  if (size < known.refused) {
    // One more than the team's size - 1, for what libgomp allocates.
    int found = std::max(tryThreads(size), 1);
    known.largest = std::max(known.largest, std::min(found, size));
    if (found < size)
      known.refused = size;
  }
  return std::min(size, known.largest);
}
