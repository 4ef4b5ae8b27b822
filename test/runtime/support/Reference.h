//===- Reference.h - what the toy optimizer means -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_SUPPORT_REFERENCE_H
#define STEPC_TEST_SUPPORT_REFERENCE_H

#include "support/Arrays.h"

#include <vector>

namespace stepc_test {

struct Hypers {
  double lr = 0.03;
  double momentum = 0.9;
  double decay = 0.2;
};

/// One tensor of the toy optimizer (support/kernels.c), its values in
/// row-major order.
struct ToyTensor {
  Type type = Type::F32;
  std::vector<double> param;
  std::vector<double> second;
  std::vector<double> buffer;
  int64_t count = 0;
  bool fresh = false;

  /// The type that is computed in, and states are kept in.
  Type stateType() const { return type == Type::F64 ? Type::F64 : Type::F32; }
  void step(const std::vector<double> &grad, const Hypers &hypers,
            bool maximize);
};

} // namespace stepc_test

#endif // STEPC_TEST_SUPPORT_REFERENCE_H
