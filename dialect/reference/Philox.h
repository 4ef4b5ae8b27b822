//===- Philox.h - the random generator --------------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_PHILOX_H
#define STEPC_DIALECT_REFERENCE_PHILOX_H

#include "dialect/RandomBits.h"

#include "llvm/ADT/StringRef.h"

#include <array>

namespace mlir::step::reference {

/// Which random numbers: of a seed, a tensor, a step and a name.
struct RandomStream {
  uint64_t seed = 0;
  /// Of the tensor.
  uint64_t number = 0;
  uint64_t count = 0;
  /// The state that is rounded, empty: the parameter; or the normal numbers'.
  llvm::StringRef name;
};

/// Philox4x32-10 of a counter, and of a key of two words, the lower one first.
inline std::array<uint32_t, 4> generate(std::array<uint32_t, 4> counter,
                                        uint64_t key) {
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < Philox::kRounds; ++round) {
    uint64_t even = uint64_t(counter[0]) * Philox::kFactor0;
    uint64_t odd = uint64_t(counter[2]) * Philox::kFactor1;
    counter = {static_cast<uint32_t>(odd >> 32) ^ counter[1] ^ key0,
               static_cast<uint32_t>(odd),
               static_cast<uint32_t>(even >> 32) ^ counter[3] ^ key1,
               static_cast<uint32_t>(even)};
    key0 += Philox::kWeyl0;
    key1 += Philox::kWeyl1;
  }
  return counter;
}

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_PHILOX_H
