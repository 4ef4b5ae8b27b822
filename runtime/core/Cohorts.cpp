//===- Cohorts.cpp - tensors that share a scalar row ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Cohorts.h"

#include "core/Memory.h"

#include <algorithm>

using namespace stepc;

static size_t hashKey(const CohortKey &key) {
  uint64_t h = (uint64_t(key.count) * 31 + key.fresh) * 2 + key.active;
  h = (h ^ (uint64_t(key.variant) << 40) ^ (uint64_t(key.group) << 20)) *
      0x9e3779b97f4a7c15u;
  return size_t(h ^ (h >> 29));
}

// Rows are whole cache lines: kernels read them from all threads.
Cohorts::Cohorts(size_t slots)
    : slots((std::max(slots, size_t(1)) + 7) & ~size_t(7)) {}

void Cohorts::reserve(size_t tensors) {
  if (tensors * 2 <= buckets.size())
    return;
  size_t numBuckets = 16;
  while (numBuckets < 2 * tensors)
    numBuckets *= 2;
  size_t capacity = numBuckets / 2;
  std::vector<double> memory(capacity * slots + 8);
  list.reserve(capacity);
  buckets.assign(numBuckets, -1);
  scalarMemory = std::move(memory);
  uintptr_t address = reinterpret_cast<uintptr_t>(scalarMemory.data());
  scalars = reinterpret_cast<double *>(roundUpToLine(address));
}

void Cohorts::clear() noexcept {
  list.clear();
  std::fill(buckets.begin(), buckets.end(), -1);
  lastAdded = -1;
}

int32_t Cohorts::add(const CohortKey &key) noexcept {
  // Neighbours mostly belong together.
  if (lastAdded >= 0 && list[lastAdded].key == key) {
    ++list[lastAdded].members;
    return lastAdded;
  }
  size_t mask = buckets.size() - 1;
  size_t at = hashKey(key) & mask;
  while (buckets[at] >= 0 && !(list[buckets[at]].key == key))
    at = (at + 1) & mask;
  if (buckets[at] < 0) {
    buckets[at] = int32_t(list.size());
    list.push_back({key, 0, 0});
  }
  lastAdded = buckets[at];
  ++list[lastAdded].members;
  return lastAdded;
}

size_t Cohorts::getBytes() const {
  return list.capacity() * sizeof(Cohort) +
         scalarMemory.capacity() * sizeof(double) +
         buckets.capacity() * sizeof(int32_t);
}
