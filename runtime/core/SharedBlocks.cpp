//===- SharedBlocks.cpp - blocks of codes that several ranks have -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/SharedBlocks.h"

#include "core/Fault.h"

#include <algorithm>
#include <cstring>

using namespace stepc;

// A word has the block from bit 32 on, whether a number of it is below 0 in bit
// 31, and the bits of the largest magnitude.
static constexpr int64_t kNothing = -1;
static constexpr int64_t kSign = int64_t(1) << 31;
static constexpr int kBlockBits = 32;

uint64_t stepc::getCuttingAxes(const Mesh &mesh, uint64_t axes, int64_t extent,
                               int64_t inner) {
  axes &= mesh.getWideAxes();
  bool cuts = false;
  int64_t share = extent;
  for (int64_t k = 0; k < mesh.getNumAxes(); ++k) {
    if (!(axes >> k & 1))
      continue;
    int64_t size = mesh.getGroupSize(uint64_t(1) << k);
    // Parts of an uneven part begin anywhere.
    cuts |= share % size != 0 && share != extent;
    share = (share + size - 1) / size;
    cuts |= share * inner % kCodeBlock != 0;
  }
  return cuts ? axes : 0;
}

int64_t *SharedBlocks::getWords(int64_t row) const noexcept {
  return reinterpret_cast<int64_t *>(words) + 2 * row * numRanks;
}

const float *SharedBlocks::getFloats(int64_t row, int end) const noexcept {
  return reinterpret_cast<const float *>(floats) + row * (head + tail) +
         (end ? head : 0);
}

void SharedBlocks::keep(int64_t row, int end,
                        const float *values) const noexcept {
  const int64_t size = getSize(end);
  std::memcpy(const_cast<float *>(getFloats(row, end)), values,
              size_t(size) * sizeof(float));
  uint32_t top = 0, any = 0;
  for (int64_t i = 0; i < size; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof(bits));
    top = std::max(top, bits & 0x7fffffffU);
    any = std::max(any, bits);
  }
  int64_t block = end ? lastBlock : firstBlock;
  // -0 is not below 0.
  getWords(row)[2 * rank + end] =
      block << kBlockBits | (any > 0x80000000U ? kSign : 0) | int64_t(top);
}

void SharedBlocks::giveUp() const noexcept {
  for (int64_t row = 0; row < rows; ++row)
    for (int end = 0; end < 2; ++end) {
      int64_t &own = getWords(row)[2 * rank + end];
      if (getSize(end) && own == kNothing)
        own = (end ? lastBlock : firstBlock) << kBlockBits | 0x7fffffff;
    }
}

void SharedBlocks::forget(int64_t first, int64_t last) const noexcept {
  std::fill(getWords(first), getWords(last), kNothing);
}

SharedBlocks::Found SharedBlocks::find(int64_t row, int end) const noexcept {
  const int64_t *own = getWords(row);
  const int64_t block = end ? lastBlock : firstBlock;
  Found found;
  uint32_t top = 0;
  bool isNegative = false;
  for (int64_t i = 0; i < 2 * numRanks; ++i) {
    if (own[i] < 0 || own[i] >> kBlockBits != block)
      continue;
    (i == 2 * rank + end ? found.here : found.elsewhere) = true;
    if (STEPC_FAULT("cut-codes-top-of-own-part") && i != 2 * rank + end)
      continue;
    top = std::max(top, uint32_t(own[i]) & 0x7fffffffU);
    isNegative |=
        (own[i] & kSign) != 0 && !STEPC_FAULT("cut-codes-sign-of-others");
  }
  uint32_t bits = top | (isNegative ? 0x80000000U : 0);
  std::memcpy(&found.top, &bits, sizeof(bits));
  return found;
}
