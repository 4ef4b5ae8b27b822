//===- RandomBits.h - the numbers of the random generator -------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Philox4x32-10: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: Parallel
// Random Numbers: As Easy as 1, 2, 3. SC 2011.
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_DIALECT_RANDOMBITS_H
#define STEPC_DIALECT_RANDOMBITS_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace mlir::step {

/// The constants of Philox4x32-10.
struct Philox {
  static constexpr int kRounds = 10;
  static constexpr uint32_t kFactor0 = 0xD2511F53, kFactor1 = 0xCD9E8D57;
  static constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
};

/// The hyper-parameter that the generator is seeded by.
constexpr llvm::StringLiteral kSeedHyper = "rounding_seed";

/// The largest seed: an f64 has every integer up to it.
constexpr int64_t kMostSeed = int64_t(1) << 53;

/// A call gives 2^3 random numbers of 16 bits.
constexpr int64_t kHalvesBits = 3;

/// A normal random number is of so many bits; a call gives two of them.
constexpr int64_t kNormalBits = 52;

/// The key that stands for any NaN as a seed: the bits of the quiet one.
constexpr int64_t kNaNKey = 0x7ff8000000000000;

/// The position of a tensor's first element is its number times 2 to this; as
/// kernels have it, which the passes see to.
constexpr int64_t kTensorBits = 40;

/// The 32-bit FNV-1a hash of a name, or of one that goes on from `hash`.
inline uint32_t hashName(llvm::StringRef name, uint32_t hash = 0x811C9DC5) {
  for (char letter : name)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x01000193;
  return hash;
}

/// The stream of normal numbers of that name: another than that by which a
/// state of the name is rounded.
inline uint32_t hashNormals(llvm::StringRef name) {
  return hashName(name, hashName(" normal "));
}

} // namespace mlir::step

#endif // STEPC_DIALECT_RANDOMBITS_H
