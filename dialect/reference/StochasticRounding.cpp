//===- StochasticRounding.cpp - rounding to bf16 by random bits -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/StochasticRounding.h"

#include "dialect/reference/Philox.h"
#include "dialect/reference/Rounding.h"

#include "llvm/ADT/bit.h"

#include <cmath>
#include <limits>

using namespace mlir::step;
using namespace mlir::step::reference;

uint32_t mlir::step::reference::getRandomHalf(const RandomStream &stream,
                                              uint64_t index) {
  uint64_t position = (stream.number << kTensorBits) + index;
  uint64_t block = position >> kHalvesBits;
  std::array<uint32_t, 4> words = generate(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
       static_cast<uint32_t>(stream.count), hashName(stream.name)},
      stream.seed);
  uint64_t half = position % (uint64_t(1) << kHalvesBits);
  return words[half / 2] >> (half % 2 * 16) & 0xffff;
}

double mlir::step::reference::roundStochastically(double value,
                                                  const RandomStream &stream,
                                                  uint64_t index) {
  if (std::isnan(value))
    return std::numeric_limits<double>::quiet_NaN();
  if (std::isinf(value) || roundTo(Format::BF16, value) == value)
    return value;
  uint32_t bits = llvm::bit_cast<uint32_t>(static_cast<float>(value));
  uint32_t toZero = bits >> 16, away = toZero + 1;
  const bool isAway = (bits & 0xffff) + getRandomHalf(stream, index) >= 0x10000;
  // No finite value becomes infinite.
  const bool exists = (away & 0x7fff) != 0x7f80;
  return llvm::bit_cast<float>((isAway && exists ? away : toZero) << 16);
}
