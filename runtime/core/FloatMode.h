//===- FloatMode.h - the float mode that kernels run in -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_FLOATMODE_H
#define STEPC_CORE_FLOATMODE_H

#include <immintrin.h>

namespace stepc {

/// While it lives, the calling thread rounds to nearest, keeps denormals and
/// traps nothing, whatever the host chose; after it the host's mode and its
/// exception flags are as before.
class FloatMode {
public:
  FloatMode() : saved(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~FloatMode() { _mm_setcsr(saved); }
  FloatMode(const FloatMode &) = delete;
  FloatMode &operator=(const FloatMode &) = delete;

private:
  static constexpr unsigned kDefault = 0x1f80;
  unsigned saved;
};

} // namespace stepc

#endif // STEPC_CORE_FLOATMODE_H
