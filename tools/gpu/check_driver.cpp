//===- check_driver.cpp - our declarations against the toolkit's ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles where each function and constant of runtime/cuda/ is that of the
// toolkit's cuda.h. check_driver.sh compiles it; nothing runs it.
//
//===----------------------------------------------------------------------===//

#include "cuda/DriverTypes.h"

#include "signatures.h"

#include <cuda.h>

// A macro of cuda.h may stand for the symbol of another version; `symbol` is
// what the engine asks the library for, and must be what the name stands for.
#define STEPC_TEXT_(x) #x
#define STEPC_TEXT(x) STEPC_TEXT_(x)

constexpr bool equal(const char *a, const char *b) {
  return *a == *b && (*a == 0 || equal(a + 1, b + 1));
}

// The parameters, in terms of our types.
namespace ours {
using stepc::cuda::CUcontext;
using stepc::cuda::CUdevice;
using stepc::cuda::CUdevice_attribute;
using stepc::cuda::CUdeviceptr;
using stepc::cuda::CUevent;
using stepc::cuda::CUfunction;
using stepc::cuda::CUhostFn;
using stepc::cuda::CUjit_option;
using stepc::cuda::CUmodule;
using stepc::cuda::CUpointer_attribute;
using stepc::cuda::CUresult;
using stepc::cuda::CUstream;
using stepc::cuda::CUstreamCaptureMode;
using stepc::cuda::CUstreamCaptureStatus;
#define STEPC_CUDA_SYMBOL(name, symbol, parameters)                            \
  using type_of_##symbol = CUresult parameters;
#include "cuda/DriverSymbols.def"
} // namespace ours

#define STEPC_CUDA_SYMBOL(name, symbol, parameters)                            \
  static_assert(kSameSignature<decltype(::symbol), ours::type_of_##symbol>,    \
                #symbol " has other parameters");                              \
  static_assert(equal(STEPC_TEXT(name), #symbol),                              \
                #name " is another version than " #symbol);
#include "cuda/DriverSymbols.def"

// Some are macros.
#define STEPC_CONSTANT(name, value)                                            \
  static_assert(int(name) == (value), #name " has another value");
STEPC_CUDA_CONSTANTS(STEPC_CONSTANT)
