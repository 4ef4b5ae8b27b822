//===- TreeFold.h - a sum whose order is fixed --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_TREEFOLD_H
#define STEPC_CORE_TREEFOLD_H

#include <cstdint>

namespace stepc {

/// Sums values, or takes their maximum, in the sequence order of
/// docs/statistics.md: leaves of 64 in order, leaves pairwise. Takes them one
/// by one and needs no memory: of the leaves before, those that wait for their
/// other half are kept, at most one of each size.
class TreeFold {
public:
  explicit TreeFold(bool maximum) : maximum(maximum) { clear(); }

  /// What a sum begins with, and a tensor counts that does not take part.
  double getIdentity() const;

  void clear();
  void add(double value);
  /// The result of all values since clear().
  double finish();

private:
  double combine(double left, double right) const;
  void closeLeaf();

  bool maximum;
  double leaf = 0.0;
  int inLeaf = 0;
  /// Leaf n waits at its number of trailing ones, as in counting by twos.
  uint64_t numLeaves = 0;
  double waiting[48];
};

} // namespace stepc

#endif // STEPC_CORE_TREEFOLD_H
