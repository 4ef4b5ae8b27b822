//===- StateArena.cpp - memory for states that the runtime allocates ------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/StateArena.h"

#include "core/Memory.h"
#include "cpu/HugePages.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <utility>

using namespace stepc;
using namespace stepc::cpu;

// Since Linux 5.14; an unknown advice is refused before.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

StateBlock::StateBlock(size_t blockSize) : size(blockSize) {
  if (size > size_t(-1) / 2)
    throw std::bad_alloc();
  if (size < kHugePageThreshold) {
    size_t rounded = roundUpToLine(std::max(size, size_t(1)));
    data = static_cast<char *>(std::aligned_alloc(64, rounded));
    if (!data)
      throw std::bad_alloc();
    std::memset(data, 0, rounded);
    return;
  }
  mappingSize = size + kHugePageSize;
  void *mapped = mmap(nullptr, mappingSize, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    throw std::bad_alloc();
  mapping = mapped;
  uintptr_t address = reinterpret_cast<uintptr_t>(mapped);
  address = (address + kHugePageSize - 1) & ~(kHugePageSize - 1);
  data = reinterpret_cast<char *>(address);
  (void)madvise(data, size, MADV_HUGEPAGE);
  if (madvise(data, size & ~size_t(4095), MADV_POPULATE_WRITE) != 0)
    std::memset(data, 0, size);
}

StateBlock::~StateBlock() {
  if (mapping)
    munmap(mapping, mappingSize);
  else
    std::free(data);
}

StateBlock::StateBlock(StateBlock &&other) noexcept
    : data(std::exchange(other.data, nullptr)),
      size(std::exchange(other.size, 0)),
      mapping(std::exchange(other.mapping, nullptr)),
      mappingSize(std::exchange(other.mappingSize, 0)) {}
