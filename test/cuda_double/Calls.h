//===- Calls.h - how each function of the double begins -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_TEST_CUDA_DOUBLE_CALLS_H
#define STEPC_TEST_CUDA_DOUBLE_CALLS_H

#include "State.h"

namespace cuda_double {

/// Whether a call that is "potentially unsafe", as it may wait for others, is
/// not permitted to this thread: by a capture of its own, or by one of any
/// thread that was begun in the global mode, unless the thread's mode says
/// otherwise.
bool isProhibited(CUcontext context);
/// Fails and spoils the captures, as a call that is not permitted in one does.
CUresult refuseCapture(CUcontext context);

} // namespace cuda_double

// The functions are those that the engine looks for.
extern "C" {
using namespace stepc::cuda;
#define STEPC_CUDA_SYMBOL(name, symbol, parameters) CUresult symbol parameters;
#include "cuda/DriverSymbols.def"
}

/// Begins each function: locks, counts, fails on demand.
#define ENTER(name)                                                            \
  std::lock_guard<std::mutex> lock(getState().mutex);                          \
  if (CUresult result = enter(name))                                           \
    return result;
/// Of a function that needs a context, of which the current one is `context`.
#define ENTER_CONTEXT(name)                                                    \
  std::lock_guard<std::mutex> lock(getState().mutex);                          \
  CUcontext context = nullptr;                                                 \
  if (CUresult result = enter(name, context))                                  \
    return result;

#endif // STEPC_TEST_CUDA_DOUBLE_CALLS_H
