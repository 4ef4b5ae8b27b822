//===- Order.h - the order of keys ------------------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NUMERICS_ORDER_H
#define STEPC_NUMERICS_ORDER_H

#include <cstdint>

namespace stepc {

/// Which of the n keys stands in each place: the largest first, equal ones in
/// their order, NaN last. Takes no memory.
void findOrder(const double *keys, int64_t n, int64_t *places);

} // namespace stepc

#endif // STEPC_NUMERICS_ORDER_H
