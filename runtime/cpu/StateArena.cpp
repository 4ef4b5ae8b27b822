//===- StateArena.cpp - memory for states that the runtime allocates ------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/StateArena.h"

#include "cpu/FloatMode.h"
#include "cpu/HugePages.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <utility>

using namespace stepc;

// Since Linux 5.14; an unknown advice is refused before.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

StateBlock::StateBlock(size_t blockSize) : size(blockSize) {
  if (size > size_t(-1) / 2)
    throw std::bad_alloc();
  if (size < kHugePageThreshold) {
    size_t rounded = (std::max(size, size_t(1)) + 63) & ~size_t(63);
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

namespace {

template <typename T>
void fill(char *data, int64_t elements, T value) {
  std::fill_n(reinterpret_cast<T *>(data), elements, value);
}

/// To nearest, ties to even; any NaN to the quiet one.
uint16_t roundToBF16(float value) {
  if (std::isnan(value))
    return 0x7fc0;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits += 0x7fff + ((bits >> 16) & 1);
  return uint16_t(bits >> 16);
}

/// To nearest, ties to even, denormals kept; any NaN to the quiet one.
uint16_t roundToF16(double value) {
  if (std::isnan(value))
    return 0x7e00;
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  double magnitude = std::fabs(value);
  if (magnitude == 0.0)
    return sign;
  if (magnitude >= 65520.0) // halfway from the largest to 2^16
    return sign | 0x7c00;
  // In units of the last place. What rounds up to the next power of two carries
  // into the exponent.
  int exponent = std::max(std::ilogb(magnitude), -14);
  auto units = uint16_t(std::nearbyint(std::scalbn(magnitude, 10 - exponent)));
  return sign | uint16_t(units + ((exponent + 14) << 10));
}

} // namespace

// Not inlined: the conversions must stay between FloatMode's two ends.
__attribute__((noinline)) static void
fillRounded(char *data, int64_t elements, Storage storage, double value) {
  switch (storage) {
  case Storage::F32:
    return fill(data, elements, float(value));
  case Storage::F64:
    return fill(data, elements, value);
  case Storage::BF16:
    return fill(data, elements, roundToBF16(float(value)));
  case Storage::F16:
    return fill(data, elements, roundToF16(value));
  case Storage::I16:
    return fill(data, elements, int16_t(value));
  case Storage::Position:
    return;
  }
}

void stepc::fillElements(char *data, int64_t elements, Storage storage,
                         double value) {
  FloatMode mode;
  fillRounded(data, elements, storage, value);
}
