//===- RowCodes.h - which states of a table row are codes ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ROWCODES_H
#define STEPC_CORE_ROWCODES_H

#include <cstdint>

namespace stepc {

struct StateCodes;

/// The codes of a table row, among those of the plan (core/StateCodes.h).
struct RowCodes {
  int32_t first = 0;
  int32_t count = 0;
};

} // namespace stepc

#endif // STEPC_CORE_ROWCODES_H
