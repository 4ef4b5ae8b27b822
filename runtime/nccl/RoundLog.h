//===- RoundLog.h - which rounds a device has yet to come to ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NCCL_ROUNDLOG_H
#define STEPC_NCCL_ROUNDLOG_H

#include "cuda/Device.h"
#include "stepc/stepc.h"

#include <array>
#include <memory>

namespace stepc::nccl {

/// Rounds and transfers that were enqueued, each with an event behind it, so
/// that one that does not end can be named. Remembers the oldest ones that are
/// not done; the device's context is current in all calls but the destructor.
class RoundLog {
public:
  struct Entry {
    cuda::CUevent event = nullptr;
    /// The first call, and how many there are.
    StepcReduceCall call = {};
    int64_t numCalls = 0;
    /// Of a transfer, which has the axes and the bytes of the call; -1: of a
    /// round.
    int32_t transferKind = -1;
  };

  explicit RoundLog(std::shared_ptr<const cuda::Device> device);
  ~RoundLog();
  RoundLog(const RoundLog &) = delete;
  RoundLog &operator=(const RoundLog &) = delete;

  /// A round that has just been enqueued on the stream, which does not capture.
  void add(const StepcReduceCall &call, int64_t numCalls,
           cuda::CUstream stream) {
    add({nullptr, call, numCalls, -1}, stream);
  }
  /// That or a transfer; the event is not read.
  void add(const Entry &given, cuda::CUstream stream);
  /// The oldest that is not done, as far as is known; null: there is none.
  const Entry *getOldest();

private:
  void destroyEvents() noexcept;

  static constexpr size_t kEntries = 16;

  std::shared_ptr<const cuda::Device> device;
  std::array<Entry, kEntries> entries;
  /// Those from `begin` on, around the end, may be under way.
  size_t begin = 0;
  size_t size = 0;
};

} // namespace stepc::nccl

#endif // STEPC_NCCL_ROUNDLOG_H
