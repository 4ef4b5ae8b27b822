//===- Order.cpp - the order of keys --------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "numerics/Order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace stepc;

/// Not std::stable_sort: it takes memory, and a step takes none.
void stepc::findOrder(const double *keys, int64_t n, int64_t *places) {
  std::iota(places, places + n, int64_t(0));
  std::sort(places, places + n, [&](int64_t i, int64_t j) {
    bool iIsNaN = std::isnan(keys[i]), jIsNaN = std::isnan(keys[j]);
    if (iIsNaN != jIsNaN)
      return jIsNaN;
    if (!iIsNaN && keys[i] != keys[j])
      return keys[i] > keys[j];
    return i < j;
  });
}
