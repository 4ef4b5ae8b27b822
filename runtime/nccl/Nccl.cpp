//===- Nccl.cpp - NCCL's library, opened at run time --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "nccl/Nccl.h"

#include "core/Status.h"

#include <dlfcn.h>
#include <mutex>

using namespace stepc;
using namespace stepc::nccl;

namespace {

constexpr const char *kLibrary = "libnccl.so.2";

/// The table, once it is complete. The library stays open: it has threads.
struct LoadedNccl {
  std::mutex mutex;
  bool complete = false;
  NcclTable table = {};
};

void load(NcclTable &table) {
  void *library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail(STEPC_COMMUNICATION_ERROR, "NCCL cannot be opened: %s", dlerror());
#define STEPC_NCCL_SYMBOL(name, result, parameters)                            \
  table.name = reinterpret_cast<decltype(table.name)>(dlsym(library, #name));  \
  if (!table.name)                                                             \
    fail(STEPC_COMMUNICATION_ERROR,                                            \
         "NCCL's %s has no function '%s', which version 2.18 has", kLibrary,   \
         #name);
#include "nccl/NcclSymbols.def"
}

const char *nameResult(ncclResult_t result) {
  switch (result) {
#define STEPC_NCCL_RESULT(name)                                                \
  case name:                                                                   \
    return #name;
    STEPC_NCCL_RESULT(ncclUnhandledCudaError)
    STEPC_NCCL_RESULT(ncclSystemError)
    STEPC_NCCL_RESULT(ncclInternalError)
    STEPC_NCCL_RESULT(ncclInvalidArgument)
    STEPC_NCCL_RESULT(ncclInvalidUsage)
    STEPC_NCCL_RESULT(ncclRemoteError)
#undef STEPC_NCCL_RESULT
  default:
    return "error";
  }
}

} // namespace

const NcclTable &stepc::nccl::getNccl() {
  static LoadedNccl loaded;
  std::lock_guard<std::mutex> lock(loaded.mutex);
  if (!loaded.complete)
    load(loaded.table);
  loaded.complete = true;
  return loaded.table;
}

std::string stepc::nccl::describeResult(const NcclTable &nccl,
                                        ncclResult_t result) {
  const char *words = nccl.ncclGetErrorString(result);
  const char *last = nccl.ncclGetLastError(nullptr);
  std::string text = nameResult(result) + (" (" + std::to_string(result) + ")");
  if (words && *words)
    text += std::string(": ") + words;
  if (last && *last)
    text += std::string(": ") + last;
  return text;
}

void stepc::nccl::failCall(const NcclTable &nccl, ncclResult_t result,
                           const std::string &what) {
  throw Error(STEPC_COMMUNICATION_ERROR,
              what + ": " + describeResult(nccl, result));
}
