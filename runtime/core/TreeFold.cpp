//===- TreeFold.cpp - a sum whose order is fixed ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/TreeFold.h"

#include "core/Fault.h"
#include "stepc/kernel_abi.h"

#include <cmath>
#include <limits>

using namespace stepc;

double TreeFold::getIdentity() const {
  return maximum ? -std::numeric_limits<double>::infinity() : 0.0;
}

double TreeFold::combine(double left, double right) const {
  if (!maximum)
    return left + right;
  if (std::isnan(left) || std::isnan(right))
    return std::numeric_limits<double>::quiet_NaN();
  return left < right ? right : left;
}

void TreeFold::clear() {
  leaf = getIdentity();
  inLeaf = 0;
  numLeaves = 0;
}

void TreeFold::add(double value) {
  if (STEPC_FAULT("engine-nan-contribution-dropped") && std::isnan(value))
    return;
  leaf = STEPC_FAULT("control-addition-commuted") ? combine(value, leaf)
                                                  : combine(leaf, value);
  if (++inLeaf ==
      STEPC_ROW_LEAF + (STEPC_FAULT("engine-leaf-too-long") ? 1 : 0))
    closeLeaf();
}

/// Pairs the leaf with the one before it, the pair with the pair before, ...
void TreeFold::closeLeaf() {
  int level = 0;
  for (uint64_t n = numLeaves; n & 1; n >>= 1)
    leaf = combine(waiting[level++], leaf);
  waiting[level] = leaf;
  ++numLeaves;
  leaf = getIdentity();
  inLeaf = 0;
}

/// What has no other half is passed on to the next level.
double TreeFold::finish() {
  if (inLeaf > 0)
    closeLeaf();
  bool first = true;
  double result = getIdentity();
  int level = 0;
  for (uint64_t n = numLeaves; n != 0; n >>= 1, ++level) {
    if (!(n & 1))
      continue;
    result = first ? waiting[level] : combine(waiting[level], result);
    first = false;
  }
  return result;
}
