//===- RowPlaces.h - which states of a table row lie in a store ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ROWPLACES_H
#define STEPC_CORE_ROWPLACES_H

#include <cstdint>

namespace stepc {

struct PlacedState;

/// Those of a table row, among the plan's (core/PlacedStates.h).
struct RowPlaces {
  int32_t first = 0;
  int32_t count = 0;
  /// Pieces of the row begin at multiples of so many elements; 0: there is one.
  int64_t cut = 0;
};

} // namespace stepc

#endif // STEPC_CORE_ROWPLACES_H
