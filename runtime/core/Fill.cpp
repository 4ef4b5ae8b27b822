//===- Fill.cpp - states that begin with a value ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Fill.h"

#include "core/FloatMode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace stepc;

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
