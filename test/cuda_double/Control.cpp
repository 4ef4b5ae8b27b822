//===- Control.cpp - what tests tell the double, and ask it ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Control.h"

#include "Calls.h"

#include <cstring>
#include <memory>

using namespace cuda_double;

namespace {

/// A call of the host in the place of a kernel.
class HostCall : public Work {
public:
  HostCall(void (*function)(void *), void *argument)
      : function(function), argument(argument) {}

  std::shared_ptr<Work> begin() override {
    return std::make_shared<HostCall>(function, argument);
  }
  bool mayRun() override { return true; }
  CUresult run() override {
    function(argument);
    return CUDA_SUCCESS;
  }

private:
  void (*function)(void *);
  void *argument;
};

/// Work that waits for that of other ranks.
class RankWork : public Work {
public:
  RankWork(void *(*make)(void *), int32_t (*ready)(void *), void *argument)
      : make(make), ready(ready), argument(argument) {}
  std::shared_ptr<Work> begin() override {
    return std::make_shared<RankWork>(make, ready, make(argument));
  }
  bool mayRun() override { return ready(argument) != 0; }
  CUresult run() override {
    getState().changed.notify_all();
    return CUDA_SUCCESS;
  }

private:
  void *(*make)(void *);
  int32_t (*ready)(void *);
  void *argument;
};

} // namespace

extern "C" {

void cudaDoubleReset(int32_t devices, uint64_t seed) {
  State &state = getState();
  std::lock_guard<std::mutex> lock(state.mutex);
  // A plan that is left from before gives back the context that it has had, and
  // not the one of the same device that is made after this.
  for (auto &context : state.contexts) {
    destroyContents(context.get());
    state.graves.push_back(std::move(context));
  }
  ++state.resets;
  releaseAll();
  state.contexts.clear();
  state.streams.clear();
  state.events.clear();
  state.modules.clear();
  state.calls.clear();
  state.random.seed(seed);
  // A driver is initialized once in the life of a process.
  state.devices = devices;
  state.capability = 90;
  state.failingIn = 0;
  state.fault.clear();
  getContextStack().clear();
}

void cudaDoubleSetCapability(int32_t capability) {
  getState().capability = capability;
}

void cudaDoubleFail(const char *function, int64_t n, int32_t error) {
  State &state = getState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.failingName = function;
  state.failingIn = n;
  state.failingWith = error;
}

int64_t cudaDoubleCalls(const char *function) {
  State &state = getState();
  std::lock_guard<std::mutex> lock(state.mutex);
  auto found = state.calls.find(function);
  return found == state.calls.end() ? 0 : found->second;
}

int64_t cudaDoubleAllCalls(void) {
  State &state = getState();
  std::lock_guard<std::mutex> lock(state.mutex);
  int64_t sum = 0;
  for (auto &[name, count] : state.calls)
    sum += name.find(':') == std::string::npos ? count : 0;
  return sum;
}

int64_t cudaDoubleAllocations(void) {
  return int64_t(getState().allocations.size());
}

int64_t cudaDoubleModules(void) { return int64_t(getState().modules.size()); }

int64_t cudaDoubleEvents(void) { return int64_t(getState().events.size()); }

int64_t cudaDoubleRetained(void) {
  int64_t sum = 0;
  for (auto &context : getState().contexts)
    sum += context->retained;
  return sum;
}

int64_t cudaDoubleContextDepth(void) {
  return int64_t(getContextStack().size());
}

int64_t cudaDoublePending(void) {
  int64_t sum = 0;
  for (auto &stream : getState().streams)
    sum += int64_t(stream->queue.size());
  return sum;
}

void cudaDoubleSetPatience(int64_t milliseconds) {
  getState().patience = std::chrono::milliseconds(milliseconds);
}

int32_t cudaDoubleEnqueue(void *stream, void (*function)(void *),
                          void *argument) {
  ENTER_CONTEXT("cudaDoubleEnqueue");
  Operation operation;
  operation.kind = Operation::Kind::Other;
  operation.work = std::make_shared<HostCall>(function, argument);
  return enqueue(context, static_cast<CUstream>(stream), std::move(operation));
}

int32_t cudaDoubleEnqueueWork(void *stream, void *(*begin)(void *),
                              int32_t (*ready)(void *), void *argument) {
  ENTER_CONTEXT("cudaDoubleEnqueueWork");
  Operation operation;
  operation.kind = Operation::Kind::Other;
  operation.work = std::make_shared<RankWork>(begin, ready, argument);
  return enqueue(context, static_cast<CUstream>(stream), std::move(operation));
}

int64_t cudaDoublePinned(void *target, int64_t size) {
  State &state = getState();
  std::lock_guard<std::mutex> lock(state.mutex);
  Unprotected memory;
  int64_t sum = 0;
  for (auto &[address, allocation] : state.allocations) {
    if (!allocation.host || allocation.registered)
      continue;
    auto own = int64_t(allocation.size);
    if (sum + own <= size)
      std::memcpy(static_cast<char *>(target) + sum,
                  reinterpret_cast<void *>(address), allocation.size);
    sum += own;
  }
  return sum;
}

void cudaDoubleOpen(int32_t open) {
  static std::unique_ptr<Unprotected> opened;
  opened = open ? std::make_unique<Unprotected>() : nullptr;
}

const char *cudaDoubleFault(void) { return getState().fault.c_str(); }

} // extern "C"
