//===- Interpose.cpp - counts what the process asks the system for --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The executable's definitions come before those of the libraries, also for
// calls from inside of them.
//
//===----------------------------------------------------------------------===//

#include "support/Interpose.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/types.h>

namespace {
std::atomic<int64_t> allocations{0};
std::atomic<int64_t> regions{0};
/// Allocations until one fails; below 0: none does.
std::atomic<int64_t> untilFailure{-1};

/// Counts an allocation; whether it shall fail.
bool failsNow() {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (untilFailure.load(std::memory_order_relaxed) < 0)
    return false;
  if (untilFailure.fetch_sub(1) != 0)
    return false;
  errno = ENOMEM;
  return true;
}
std::atomic<int64_t> fileCalls{0};
std::atomic<int64_t> untilFileFailure{-1};
std::atomic<int> fileError{0};

/// Counts a call; whether it shall fail, as all behind the first that does.
bool fileFailsNow() {
  fileCalls.fetch_add(1, std::memory_order_relaxed);
  int64_t left = untilFileFailure.load();
  while (left > 0 && !untilFileFailure.compare_exchange_weak(left, left - 1))
    ;
  if (left != 0)
    return false;
  errno = fileError.load();
  return true;
}
} // namespace

int64_t stepc_test::countAllocations() { return allocations.load(); }
int64_t stepc_test::countRegions() { return regions.load(); }
void stepc_test::failAllocation(int64_t n) { untilFailure.store(n); }
int64_t stepc_test::countFileCalls() { return fileCalls.load(); }
void stepc_test::failFileCalls(int64_t n, int error) {
  fileError.store(error);
  untilFileFailure.store(n);
}

extern "C" {

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) { return failsNow() ? nullptr : __libc_malloc(size); }

void *calloc(size_t count, size_t size) {
  return failsNow() ? nullptr : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
  return failsNow() ? nullptr : __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
  return failsNow() ? nullptr : __libc_memalign(alignment, size);
}

void *memalign(size_t alignment, size_t size) {
  return failsNow() ? nullptr : __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
  if (failsNow())
    return ENOMEM;
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}

void *mmap(void *address, size_t size, int protection, int flags, int file,
           off_t offset) {
  if (failsNow())
    return MAP_FAILED;
  using Function = void *(*)(void *, size_t, int, int, int, off_t);
  static auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "mmap"));
  return real(address, size, protection, flags, file, offset);
}

ssize_t pread(int file, void *to, size_t bytes, off_t offset) {
  using Function = ssize_t (*)(int, void *, size_t, off_t);
  static auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pread"));
  return fileFailsNow() ? -1 : real(file, to, bytes, offset);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t offset) {
  using Function = ssize_t (*)(int, const void *, size_t, off_t);
  static auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pwrite"));
  return fileFailsNow() ? -1 : real(file, from, bytes, offset);
}

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads,
                   unsigned flags) {
  regions.fetch_add(1, std::memory_order_relaxed);
  using Function = void (*)(void (*)(void *), void *, unsigned, unsigned);
  static auto real =
      reinterpret_cast<Function>(dlsym(RTLD_NEXT, "GOMP_parallel"));
  real(body, data, threads, flags);
}

} // extern "C"
