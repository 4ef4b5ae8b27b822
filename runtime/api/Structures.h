//===- Structures.h - structures that callers have
//-------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_API_STRUCTURES_H
#define STEPC_API_STRUCTURES_H

#include "core/Status.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace stepc {

/// Copies what the caller's structure has room for; the first version had
/// `leastSize`.
template <typename Structure>
void copyOut(const Structure &value, size_t leastSize, const char *name,
             Structure *out) {
  size_t size = out->structSize;
  if (size < leastSize)
    fail(STEPC_INVALID_ARGUMENT, "%s has struct size %zu, the least is %zu",
         name, size, leastSize);
  std::memcpy(out, &value, std::min(size, sizeof(Structure)));
  out->structSize = size;
}

} // namespace stepc

#endif // STEPC_API_STRUCTURES_H
