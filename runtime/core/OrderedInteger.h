//===- OrderedInteger.h - doubles as integers of the same order ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ORDEREDINTEGER_H
#define STEPC_CORE_ORDEREDINTEGER_H

#include <cstdint>

namespace stepc {

/// A maximum crosses ranks as an integer: -0.0 below +0.0, any NaN above all.
/// Kernels do the same to what they leave in buffers.
int64_t toOrderedInteger(double value);
double fromOrderedInteger(int64_t key);

} // namespace stepc

#endif // STEPC_CORE_ORDEREDINTEGER_H
