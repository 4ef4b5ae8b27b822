//===- Status.cpp - errors inside the runtime, statuses outside -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Status.h"

#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstring>

using namespace stepc;

namespace {
// A plain array: no destructor at thread exit, no allocation for a message.
thread_local char keptMessage[2048];
} // namespace

void stepc::fail(StepcStatus status, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string message(length > 0 ? length : 0, '\0');
  std::vsnprintf(message.data(), message.size() + 1, format, again);
  va_end(again);
  throw Error(status, std::move(message));
}

std::string stepc::describeNumber(double value) {
  char text[32]; // the longest is -2.2250738585072014e-308
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

void stepc::requireNotNull(const void *argument, const char *name) {
  if (!argument)
    fail(STEPC_INVALID_ARGUMENT, "%s is NULL", name);
}

void stepc::requireStructSize(const void *structure, size_t leastSize,
                              size_t knownSize, const char *name) {
  size_t size;
  std::memcpy(&size, structure, sizeof(size));
  if (size < leastSize || size > 4096)
    fail(STEPC_INVALID_ARGUMENT, "%s has struct size %zu, the least is %zu",
         name, size, leastSize);
  const char *bytes = static_cast<const char *>(structure);
  for (size_t i = knownSize; i < size; ++i)
    if (bytes[i] != 0)
      fail(STEPC_INVALID_ARGUMENT,
           "%s of struct size %zu sets a field that this runtime does not know",
           name, size);
}

StepcStatus stepc::report(StepcStatus status, const char *message) noexcept {
  size_t length = std::strlen(message);
  if (length >= sizeof(keptMessage))
    length = sizeof(keptMessage) - 1;
  std::memcpy(keptMessage, message, length);
  keptMessage[length] = '\0';
  return status;
}

const char *stepc::lastMessage() noexcept { return keptMessage; }
