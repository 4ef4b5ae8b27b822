//===- DriverTypes.h - what the CUDA driver's functions take --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The types and constants of the driver's interface that the engine uses, so
// that the library builds where no toolkit is. Enumerations are `int` here,
// which they are in memory. tools/gpu/check_driver.sh compares all of it with
// the toolkit's cuda.h.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_DRIVERTYPES_H
#define STEPC_CUDA_DRIVERTYPES_H

#include <cstddef>

struct CUctx_st;
struct CUevent_st;
struct CUfunc_st;
struct CUmod_st;
struct CUstream_st;

namespace stepc::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = ::CUctx_st *;
using CUevent = ::CUevent_st *;
using CUfunction = ::CUfunc_st *;
using CUmodule = ::CUmod_st *;
using CUstream = ::CUstream_st *;
using CUhostFn = void (*)(void *);
/// Enumerations of the driver.
using CUdevice_attribute = int;
using CUjit_option = int;
using CUpointer_attribute = int;
using CUstreamCaptureMode = int;
using CUstreamCaptureStatus = int;

/// Every constant that the engine uses: X(name, value).
#define STEPC_CUDA_CONSTANTS(X)                                                \
  X(CUDA_SUCCESS, 0)                                                           \
  X(CUDA_ERROR_INVALID_VALUE, 1)                                               \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                               \
  X(CUDA_ERROR_NOT_INITIALIZED, 3)                                             \
  X(CUDA_ERROR_DEINITIALIZED, 4)                                               \
  X(CUDA_ERROR_NO_DEVICE, 100)                                                 \
  X(CUDA_ERROR_INVALID_CONTEXT, 201)                                           \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                         \
  X(CUDA_ERROR_NOT_FOUND, 500)                                                 \
  X(CUDA_ERROR_NOT_READY, 600)                                                 \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                           \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                            \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                      \
  X(CUDA_ERROR_ASSERT, 710)                                                    \
  X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                                      \
  X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                                       \
  X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                                        \
  X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                                     \
  X(CUDA_ERROR_INVALID_PC, 718)                                                \
  X(CUDA_ERROR_LAUNCH_FAILED, 719)                                             \
  X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)                                   \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                              \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                          \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                          \
  X(CU_JIT_ERROR_LOG_BUFFER, 5)                                                \
  X(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6)                                     \
  X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                       \
  X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                    \
  X(CU_MEMORYTYPE_HOST, 1)                                                     \
  X(CU_MEMHOSTALLOC_PORTABLE, 1)                                               \
  X(CU_MEMHOSTREGISTER_PORTABLE, 1)                                            \
  X(CU_MEMHOSTREGISTER_DEVICEMAP, 2)                                           \
  X(CU_EVENT_DISABLE_TIMING, 2)                                                \
  X(CU_STREAM_NON_BLOCKING, 1)                                                 \
  X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0)                                          \
  X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                         \
  X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                          \
  X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)

#define STEPC_CUDA_CONSTANT(name, value) inline constexpr int name = value;
STEPC_CUDA_CONSTANTS(STEPC_CUDA_CONSTANT)
#undef STEPC_CUDA_CONSTANT

} // namespace stepc::cuda

#endif // STEPC_CUDA_DRIVERTYPES_H
