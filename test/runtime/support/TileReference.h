//===- TileReference.h - what support/statistics.c means ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_SUPPORT_TILEREFERENCE_H
#define STEPC_TEST_SUPPORT_TILEREFERENCE_H

#include <cstdint>
#include <vector>

namespace stepc_test {

using Values = std::vector<double>;
using Floats = std::vector<float>;

/// Sums in the orders of docs/statistics.md.
double sumLanes(const Values &values);
double sumSequence(const Values &values);

struct LambTensor {
  Floats param, moment;
  void step(const Floats &grad, double lr, double decay);
};

struct FactorTensor {
  int64_t b, n, m;
  Floats param, rows, columns;
  void step(const Floats &grad, double lr);
};

struct ClipTensor {
  Floats param;
  int64_t group = 0;
};

struct ClipModel {
  double scale = 8.0, steps = 0.0;
  Values d = {0.5};
  Values results;
  std::vector<ClipTensor> tensors;
  /// Empty gradients take no part. Whether the step was skipped.
  bool step(const std::vector<Floats> &grads, const std::vector<bool> &missing,
            const Values &lr, double maxNorm);
};

} // namespace stepc_test

#endif // STEPC_TEST_SUPPORT_TILEREFERENCE_H
