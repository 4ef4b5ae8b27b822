//===- Sha256.h - SHA-256 -------------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_SHA256_H
#define STEPC_CORE_SHA256_H

#include <cstddef>
#include <string>

namespace stepc {

/// The SHA-256 (FIPS 180-4) of `size` bytes as 64 lower-case hex digits.
std::string sha256Hex(const void *bytes, size_t size);

} // namespace stepc

#endif // STEPC_CORE_SHA256_H
