//===- HugePages.cpp - huge pages for large memory ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/HugePages.h"

#include <cerrno>
#include <cstdint>
#include <sys/mman.h>

// Since Linux 6.1; an unknown advice is refused before.
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

void stepc::cpu::adviseHugePages(void *address, size_t size) noexcept {
  if (size < kHugePageThreshold)
    return;
  // Only pages that lie wholly inside: the others may be somebody else's.
  uintptr_t begin = reinterpret_cast<uintptr_t>(address);
  uintptr_t end = (begin + size) & ~(kHugePageSize - 1);
  begin = (begin + kHugePageSize - 1) & ~(kHugePageSize - 1);
  if (begin >= end)
    return;
  int savedErrno = errno;
  auto *inner = reinterpret_cast<void *>(begin);
  if (madvise(inner, end - begin, MADV_HUGEPAGE) == 0)
    (void)madvise(inner, end - begin, MADV_COLLAPSE);
  errno = savedErrno;
}
