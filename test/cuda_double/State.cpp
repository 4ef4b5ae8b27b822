//===- State.cpp - what the double of the driver keeps --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include <algorithm>
#include <dlfcn.h>

using namespace cuda_double;

State &cuda_double::getState() {
  static State state;
  return state;
}

std::vector<CUcontext> &cuda_double::getContextStack() {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

static constexpr int32_t kHandlesOfAReset = 1000;

CUdevice cuda_double::getHandle(int32_t ordinal) {
  return getState().resets * kHandlesOfAReset + ordinal;
}

int32_t cuda_double::getOrdinal(CUdevice handle) {
  int32_t ordinal = handle % kHandlesOfAReset;
  return handle == ordinal || handle == getHandle(ordinal) ? ordinal : -1;
}

CUstreamCaptureMode &cuda_double::getCaptureMode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

bool &cuda_double::isInHostFunction() {
  thread_local bool isIn = false;
  return isIn;
}

template <typename T>
static bool isIn(const std::vector<std::unique_ptr<T>> &list, const T *item) {
  return std::any_of(list.begin(), list.end(),
                     [&](const auto &own) { return own.get() == item; });
}

bool cuda_double::isAlive(CUmodule module) {
  return isIn(getState().modules, module);
}
bool cuda_double::isAlive(CUcontext context) {
  return isIn(getState().contexts, context);
}
bool cuda_double::isAlive(CUstream stream) {
  return isIn(getState().streams, stream);
}
bool cuda_double::isAlive(CUevent event) {
  return isIn(getState().events, event);
}

void cuda_double::waitForOthers() {
  State &state = getState();
  std::unique_lock<std::mutex> lock(state.mutex, std::adopt_lock);
  state.changed.wait_for(lock, std::chrono::milliseconds(1));
  lock.release();
}

bool cuda_double::maySleep(std::chrono::steady_clock::time_point begin,
                           const char *who) {
  if (std::chrono::steady_clock::now() - begin < getState().patience)
    return true;
  getState().fault = std::string(who) + " waits for ever";
  return false;
}

bool cuda_double::isFatal(CUresult result) {
  return result == CUDA_ERROR_DEINITIALIZED ||
         result == CUDA_ERROR_ECC_UNCORRECTABLE ||
         (result >= CUDA_ERROR_ILLEGAL_ADDRESS &&
          result <= CUDA_ERROR_LAUNCH_FAILED && result != 701 &&
          (result < 703 || result > 708));
}

CUresult cuda_double::enter(const char *function) {
  State &state = getState();
  ++state.calls[function];
  if (isInHostFunction()) {
    state.fault = std::string("a function of the host calls ") + function;
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if (state.failingIn > 0 && state.failingName == function &&
      --state.failingIn == 0) {
    // An error that ends contexts ends all of them, and stays.
    if (isFatal(state.failingWith))
      for (auto &context : state.contexts)
        context->broken = state.failingWith;
    return state.failingWith;
  }
  if (!state.initialized && std::string(function) != "cuInit")
    return CUDA_ERROR_NOT_INITIALIZED;
  return CUDA_SUCCESS;
}

CUresult cuda_double::enter(const char *function, CUcontext &context) {
  if (CUresult result = enter(function))
    return result;
  if (getContextStack().empty() || !isAlive(getContextStack().back()))
    return CUDA_ERROR_INVALID_CONTEXT;
  context = getContextStack().back();
  return context->broken;
}

void cuda_double::destroyContents(CUcontext context) {
  State &state = getState();
  auto remove = [&](auto &list) {
    list.erase(std::remove_if(
                   list.begin(), list.end(),
                   [&](const auto &own) { return own->context == context; }),
               list.end());
  };
  // A function of the host that runs comes to its end.
  remove(state.streams);
  for (auto it = state.allocations.begin(); it != state.allocations.end();) {
    auto next = std::next(it);
    if (it->second.context == context)
      release(it->first);
    it = next;
  }
  for (auto &module : state.modules)
    if (module->context == context)
      dlclose(module->library);
  remove(state.modules);
  remove(state.events);
}
