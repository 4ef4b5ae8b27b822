//===- Status.h - errors inside the runtime, statuses outside -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Inside, what refuses a call throws Error. At the C ABI guarded() turns it
// into a status and keeps the message for stepcLastErrorMessage(). Nothing that
// succeeds touches the message.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_STATUS_H
#define STEPC_CORE_STATUS_H

#include "core/FloatMode.h"
#include "stepc/stepc.h"

#include <exception>
#include <new>
#include <string>

namespace stepc {

/// A refused call. Messages are lower-case without a final period: the fact,
/// then the values.
class Error : public std::exception {
public:
  Error(StepcStatus status, std::string message)
      : status(status), message(std::move(message)) {}

  StepcStatus getStatus() const { return status; }
  const char *what() const noexcept override { return message.c_str(); }

private:
  StepcStatus status;
  std::string message;
};

/// Throws an Error with a message made as by printf.
[[noreturn]] void fail(StepcStatus status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/// Refuses an argument that a caller does not give.
void requireNotNull(const void *argument, const char *name);

/// Checks the size that the caller's header gives a structure, which is its
/// first field: the first version had `leastSize`, and it may be larger than
/// ours when what we do not know is 0.
void requireStructSize(const void *structure, size_t leastSize,
                       size_t knownSize, const char *name);

/// The same of a structure that has not grown.
inline void requireStructSize(const void *structure, size_t knownSize,
                              const char *name) {
  requireStructSize(structure, knownSize, knownSize, name);
}

/// Keeps `message` for this thread and returns `status`. Allocates nothing, so
/// that running out of memory can be told.
StepcStatus report(StepcStatus status, const char *message) noexcept;

/// The message that was kept last; "" when there is none.
const char *lastMessage() noexcept;

/// The number as it is written in C, in the fewest digits that are it alone,
/// whatever the caller's locale and rounding are.
std::string describeNumber(double value);

/// Runs `body` and turns what it throws into a status. Numbers are parsed and
/// computed in the float mode of kernels: 0.1 in a manifest is the same
/// default, and the same bf16, for a caller who rounds upward.
template <typename Body>
StepcStatus guarded(Body &&body) noexcept {
  FloatMode mode;
  try {
    body();
    return STEPC_OK;
  } catch (const Error &error) {
    return report(error.getStatus(), error.what());
  } catch (const std::bad_alloc &) {
    return report(STEPC_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception &error) {
    return report(STEPC_INTERNAL_ERROR, error.what());
  } catch (...) {
    return report(STEPC_INTERNAL_ERROR, "unknown exception");
  }
}

} // namespace stepc

#endif // STEPC_CORE_STATUS_H
