//===- Memory.h - memory that steps use ---------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_MEMORY_H
#define STEPC_CORE_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace stepc {

/// A block of the processor's or of a device's memory, as long as its owner
/// lives.
struct Memory {
  uintptr_t address = 0;
  size_t size = 0;
  std::shared_ptr<void> owner;
};

/// Takes a block. Throws where there is none.
using TakeMemory = std::function<Memory(size_t bytes)>;

/// To whole lines of the cache, in which blocks that lie side by side begin.
inline size_t roundUpToLine(size_t bytes) { return (bytes + 63) & ~size_t(63); }

} // namespace stepc

#endif // STEPC_CORE_MEMORY_H
