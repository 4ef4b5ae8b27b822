//===- Memory.cpp - device memory: pages that are mostly protected --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include <sys/mman.h>

using namespace cuda_double;

namespace {

constexpr size_t kPage = 4096;
/// A range of addresses, of which allocations take one part after the other;
/// freed parts are not used again, so that a stale address is noticed.
constexpr size_t kArena = size_t(64) << 30;

struct Arena {
  char *begin = nullptr;
  size_t used = 0;
  int unprotected = 0;
} arena;

size_t roundToPage(size_t size) { return (size + kPage - 1) & ~(kPage - 1); }

void protectAll(int protection) {
  if (arena.begin)
    mprotect(arena.begin, arena.used, protection);
}

} // namespace

CUresult cuda_double::allocate(CUcontext context, size_t size,
                               CUdeviceptr &out) {
  if (size == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (!arena.begin) {
    void *mapped = mmap(nullptr, kArena, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
      return CUDA_ERROR_OUT_OF_MEMORY;
    arena.begin = static_cast<char *>(mapped);
  }
  // A page in between belongs to nobody; who checks accesses knows it.
  size_t taken = roundToPage(size) + kPage;
  if (size > kArena || arena.used + taken > kArena)
    return CUDA_ERROR_OUT_OF_MEMORY;
  char *address = arena.begin + arena.used;
  // What was there before is not zero on a device.
  mprotect(address, roundToPage(size), PROT_READ | PROT_WRITE);
  std::fill_n(address, size, char(0xa5));
  if (!arena.unprotected)
    mprotect(address, roundToPage(size), PROT_NONE);
  arena.used += taken;
  out = reinterpret_cast<CUdeviceptr>(address);
  getState().allocations[out] = {size, context};
  return CUDA_SUCCESS;
}

void cuda_double::release(CUdeviceptr address) {
  auto found = getState().allocations.find(address);
  void *begin = reinterpret_cast<void *>(address);
  if (!found->second.registered) {
    madvise(begin, roundToPage(found->second.size), MADV_DONTNEED);
    mprotect(begin, roundToPage(found->second.size), PROT_NONE);
  }
  getState().allocations.erase(found);
}

void cuda_double::releaseAll() {
  while (!getState().allocations.empty())
    release(getState().allocations.begin()->first);
}

const Allocation *cuda_double::findAllocation(CUdeviceptr address,
                                              size_t size) {
  auto &allocations = getState().allocations;
  auto next = allocations.upper_bound(address);
  if (next == allocations.begin())
    return nullptr;
  auto &[begin, allocation] = *std::prev(next);
  bool inside = address - begin <= allocation.size &&
                size <= allocation.size - (address - begin);
  return inside ? &allocation : nullptr;
}

Unprotected::Unprotected() {
  if (arena.unprotected++ == 0)
    protectAll(PROT_READ | PROT_WRITE);
}

Unprotected::~Unprotected() {
  if (--arena.unprotected == 0)
    protectAll(PROT_NONE);
}
