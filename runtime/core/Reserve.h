//===- Reserve.h - memory ahead of need -----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_RESERVE_H
#define STEPC_CORE_RESERVE_H

#include <algorithm>
#include <vector>

namespace stepc {

/// Takes the memory for `size` elements in all. By doubling: tensors that are
/// bound one by one must not cost the square of their number.
template <typename T>
void reserveAtLeast(std::vector<T> &list, size_t size) {
  if (list.capacity() < size)
    list.reserve(std::max(size, 2 * list.capacity()));
}

} // namespace stepc

#endif // STEPC_CORE_RESERVE_H
