//===- GiveCommunicator.h - a communicator for a caller -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_GIVECOMMUNICATOR_H
#define STEPC_CORE_GIVECOMMUNICATOR_H

#include "stepc/communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace stepc {

/// What a communicator had in the first version.
inline constexpr std::size_t kLeastCommunicator =
    offsetof(StepcCommunicator, enqueue);

/// Copies what the caller's structure has room for, of `room` bytes.
inline void giveCommunicator(StepcCommunicator own, std::size_t room,
                             StepcCommunicator *out) {
  own.structSize = std::min(room, sizeof(own));
  std::memcpy(static_cast<void *>(out), &own, own.structSize);
}

} // namespace stepc

#endif // STEPC_CORE_GIVECOMMUNICATOR_H
