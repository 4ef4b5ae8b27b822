//===- RandomNormal.cpp - normal random numbers ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/RandomNormal.h"

#include "dialect/HostFunctions.h"

#include "llvm/ADT/bit.h"

#include <cmath>

using namespace mlir::step;
using namespace mlir::step::reference;

uint64_t mlir::step::reference::getNormalKey(double seed) {
  return std::isnan(seed) ? uint64_t(kNaNKey) : llvm::bit_cast<uint64_t>(seed);
}

double mlir::step::reference::getNormal(const RandomStream &stream,
                                        uint64_t index) {
  uint64_t position = (stream.number << kTensorBits) + index;
  uint64_t block = position >> 1;
  std::array<uint32_t, 4> words = generate(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
       static_cast<uint32_t>(stream.count), hashNormals(stream.name)},
      stream.seed);
  unsigned first = position % 2 * 2;
  uint64_t both = uint64_t(words[first + 1]) << 32 | words[first];
  // k + 1/2 of 2^52 equal parts, and how far that is from the middle.
  auto k = static_cast<double>(both >> (64 - kNormalBits));
  return hostNormalQuantile((k + 0.5 - 0x1p51) * 0x1p-52);
}
