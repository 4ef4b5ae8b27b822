//===- Errors.cpp - the driver's errors and their words, doubled ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Calls.h"

#include <string>

using namespace cuda_double;

namespace {

const char *const kNames[][3] = {
    {"0", "CUDA_SUCCESS", "no error"},
    {"1", "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {"2", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {"3", "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {"100", "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {"101", "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {"200", "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {"201", "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {"218", "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {"400", "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {"500", "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {"600", "CUDA_ERROR_NOT_READY", "device not ready"},
    {"700", "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {"701", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {"702", "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out"},
    {"716", "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {"719", "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {"800", "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {"900", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {"901", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {"906", "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking "
     "stream"},
};

CUresult findText(CUresult error, int column, const char **out) {
  for (auto &row : kNames)
    if (std::to_string(error) == row[0]) {
      *out = row[column];
      return CUDA_SUCCESS;
    }
  *out = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

} // namespace

extern "C" {

CUresult cuGetErrorName(CUresult error, const char **out) {
  return findText(error, 1, out);
}

CUresult cuGetErrorString(CUresult error, const char **out) {
  return findText(error, 2, out);
}

} // extern "C"
