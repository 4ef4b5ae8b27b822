//===- Calls.h - how each function of the double begins -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_TEST_CUDA_DOUBLE_CALLS_H
#define STEPC_TEST_CUDA_DOUBLE_CALLS_H

#include "State.h"

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
