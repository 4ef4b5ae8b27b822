//===- Driver.cpp - the CUDA driver, opened at run time -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/Driver.h"

#include <dlfcn.h>
#include <mutex>

using namespace stepc;
using namespace stepc::cuda;

namespace {

constexpr const char *kLibrary = "libcuda.so.1";

/// The table, once it is complete. The library stays open: the driver has
/// threads of its own and cannot be closed.
struct LoadedDriver {
  std::mutex mutex;
  bool complete = false;
  DriverTable table = {};
};

void load(DriverTable &table) {
  void *library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail(STEPC_DEVICE_ERROR, "the CUDA driver cannot be opened: %s", dlerror());
#define STEPC_CUDA_SYMBOL(name, symbol, parameters)                            \
  table.name =                                                                 \
      reinterpret_cast<decltype(table.name)>(dlsym(library, #symbol));         \
  if (!table.name)                                                             \
    fail(STEPC_DEVICE_ERROR, "the CUDA driver %s has no function '%s'",        \
         kLibrary, #symbol);
#include "cuda/DriverSymbols.def"
}

} // namespace

const DriverTable &stepc::cuda::getDriver() {
  static LoadedDriver loaded;
  std::lock_guard<std::mutex> lock(loaded.mutex);
  if (loaded.complete)
    return loaded.table;
  load(loaded.table);
  require(loaded.table, loaded.table.cuInit(0), "cuInit", "");
  loaded.complete = true;
  return loaded.table;
}

std::string stepc::cuda::describeResult(const DriverTable &driver,
                                        CUresult result) {
  const char *name = nullptr;
  const char *text = nullptr;
  if (driver.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
    return "error " + std::to_string(result);
  if (driver.cuGetErrorString(result, &text) != CUDA_SUCCESS || !text)
    text = "unknown to the driver";
  return name + (" (" + std::to_string(result) + "): ") + text;
}

bool stepc::cuda::isFatal(CUresult result) {
  switch (result) {
  case CUDA_ERROR_DEINITIALIZED:
  case CUDA_ERROR_ECC_UNCORRECTABLE:
  case CUDA_ERROR_ILLEGAL_ADDRESS:
  case CUDA_ERROR_LAUNCH_TIMEOUT:
  case CUDA_ERROR_CONTEXT_IS_DESTROYED:
  case CUDA_ERROR_ASSERT:
  case CUDA_ERROR_HARDWARE_STACK_ERROR:
  case CUDA_ERROR_ILLEGAL_INSTRUCTION:
  case CUDA_ERROR_MISALIGNED_ADDRESS:
  case CUDA_ERROR_INVALID_ADDRESS_SPACE:
  case CUDA_ERROR_INVALID_PC:
  case CUDA_ERROR_LAUNCH_FAILED:
    return true;
  default:
    return false;
  }
}

void stepc::cuda::require(const DriverTable &driver, CUresult result,
                          const char *call, const std::string &what) {
  if (result == CUDA_SUCCESS)
    return;
  StepcStatus status = result == CUDA_ERROR_OUT_OF_MEMORY ? STEPC_OUT_OF_MEMORY
                                                          : STEPC_DEVICE_ERROR;
  throw DriverError(status, call + what + ": " + describeResult(driver, result),
                    result);
}
