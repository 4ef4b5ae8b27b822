//===- OrderedInteger.cpp - doubles as integers of the same order -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/OrderedInteger.h"

#include "core/Fault.h"

#include <cmath>
#include <cstring>
#include <limits>

using namespace stepc;

/// Of negative numbers the bits below the sign run backwards.
static int64_t flipNegative(int64_t bits) {
  return bits < 0 ? bits ^ INT64_MAX : bits;
}

int64_t stepc::toOrderedInteger(double value) {
  if (std::isnan(value))
    return STEPC_FAULT("exchange-nan-lost") ? INT64_MIN : INT64_MAX;
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return flipNegative(bits);
}

double stepc::fromOrderedInteger(int64_t key) {
  if (key == INT64_MAX)
    return std::numeric_limits<double>::quiet_NaN();
  int64_t bits = flipNegative(key);
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
