//===- RuntimeFault.cpp - which fault the environment switches on ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "core/Fault.h"

#include <cstdlib>
#include <cstring>

bool stepc::isFault(const char *name) noexcept {
  static const char *const chosen = std::getenv("STEPC_FAULT");
  return chosen && std::strcmp(chosen, name) == 0;
}
