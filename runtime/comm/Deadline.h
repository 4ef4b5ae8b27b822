//===- Deadline.h - how long something is waited for --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_COMM_DEADLINE_H
#define STEPC_COMM_DEADLINE_H

#include <chrono>
#include <cstdint>
#include <thread>

namespace stepc {

/// A year, so that sums of times do not overflow.
inline constexpr int64_t kMostMilliseconds = int64_t(365) * 24 * 3600 * 1000;

/// For loops that ask whether something is done.
class Deadline {
public:
  explicit Deadline(std::chrono::milliseconds length)
      : begin(std::chrono::steady_clock::now()), end(begin + length) {}

  bool isOver() const { return std::chrono::steady_clock::now() > end; }

  /// Lets others run. Mostly what is waited for comes at once; who waits for
  /// long leaves them the cores.
  void pause() const {
    if (std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(1))
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    else
      std::this_thread::yield();
  }

private:
  std::chrono::steady_clock::time_point begin, end;
};

} // namespace stepc

#endif // STEPC_COMM_DEADLINE_H
