//===- Addends.h - gradients as they cross ranks, and their sums ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each addend is rounded once to the type in which it crosses, and the sum of
// them is made in the order of the ranks, so that every rank and every run has
// the same bits: of bf16 addends a, b, c on ranks 0, 1, 2 it is (a + b) + c, in
// f32. No result depends on how the elements are cut.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ADDENDS_H
#define STEPC_CORE_ADDENDS_H

#include "core/Storage.h"

#include <cstddef>
#include <cstdint>

namespace stepc {

/// Writes `count` elements of type `from` as elements of type `to`. Divides
/// them before, in the type in which they are added up, where the divisor is
/// not 1.
void convertElements(const void *source, Storage from, void *target, Storage to,
                     int64_t count, double divisor) noexcept;

/// The sum of `numPieces` rows of `count` elements of type `wire`, each
/// `stride` elements behind the one before, in their order; divided where the
/// divisor is not 1, and with `adds` then added to what the target has. `sum`
/// is f64 or f32.
void addElements(const void *first, int64_t stride, int64_t numPieces,
                 Storage wire, void *target, Storage sum, int64_t count,
                 double divisor, bool adds) noexcept;

} // namespace stepc

#endif // STEPC_CORE_ADDENDS_H
