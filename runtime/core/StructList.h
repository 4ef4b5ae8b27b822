//===- StructList.h - lists of a caller's structures ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_STRUCTLIST_H
#define STEPC_CORE_STRUCTLIST_H

#include "core/Status.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace stepc {

/// Structures side by side, whose first field is their size. A newer caller's
/// are longer than ours, an older caller's shorter: the list steps by the size
/// of the first, and what lies behind a structure's own size is not there.
template <typename Struct>
class StructList {
public:
  /// Checks the first. `leastSize`: in the first version. Messages say `type`
  /// and `word`: "StepcBinding" and "binding".
  StructList(const Struct *first, int64_t size, size_t leastSize,
             const char *type, const char *word)
      : first(first), size(size), leastSize(leastSize), type(type), word(word) {
    if (size > 0)
      requireStructSize(first, leastSize, sizeof(Struct), type);
  }

  int64_t getSize() const { return size; }

  const Struct &operator[](int64_t i) const {
    return *reinterpret_cast<const Struct *>(
        reinterpret_cast<const char *>(first) + size_t(i) * first->structSize);
  }

  /// Refuses one of another size than the first.
  void require(int64_t i, const std::string &tensor) const {
    const Struct &own = (*this)[i];
    requireStructSize(&own, leastSize, sizeof(Struct), type);
    if (own.structSize != first->structSize)
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s: struct size %zu, that of the first %s is %zu",
           tensor.c_str(), own.structSize, word, first->structSize);
  }

private:
  const Struct *first;
  int64_t size;
  size_t leastSize;
  const char *type, *word;
};

} // namespace stepc

#endif // STEPC_CORE_STRUCTLIST_H
