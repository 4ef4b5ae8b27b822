//===- StateArena.h - memory for states that the runtime allocates --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_STATEARENA_H
#define STEPC_CPU_STATEARENA_H

#include <cstddef>

namespace stepc::cpu {

/// One block of zeroed memory, aligned to 64 bytes. Large blocks are aligned to
/// huge pages and touched here, so that no step takes page faults.
class StateBlock {
public:
  explicit StateBlock(size_t size);
  ~StateBlock();
  StateBlock(StateBlock &&other) noexcept;
  StateBlock &operator=(StateBlock &&) = delete;

  char *getData() const { return data; }
  size_t getSize() const { return size; }

private:
  char *data = nullptr;
  size_t size = 0;
  /// What was mapped; null when the block comes from the heap.
  void *mapping = nullptr;
  size_t mappingSize = 0;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_STATEARENA_H
