//===- Tell.h - what a communicator tells its caller ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_COMM_TELL_H
#define STEPC_COMM_TELL_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>

namespace stepc {

/// What a function of StepcCommunicator returns: 0, or 1 and the words of what
/// was thrown, which no caller in C could catch.
template <typename Call>
int32_t tell(char *message, std::size_t messageSize, Call &&call) noexcept {
  try {
    call();
    return 0;
  } catch (const std::exception &error) {
    std::snprintf(message, messageSize, "%s", error.what());
    return 1;
  }
}

} // namespace stepc

#endif // STEPC_COMM_TELL_H
