//===- check_nccl.cpp - our declarations against NCCL's -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles where each function, type and constant of runtime/nccl/ is that of
// nccl.h; the program looks for the functions in a library:
// check_nccl LIBRARY. check_nccl.sh compiles and runs it.
//
//===----------------------------------------------------------------------===//

#include "nccl/NcclTypes.h"

#include "signatures.h"

#include <nccl.h>

#include <cstddef>
#include <cstdio>
#include <dlfcn.h>

template <>
struct Plain<::ncclUniqueId> {
  using Type = stepc::nccl::ncclUniqueId;
};
template <>
struct Plain<::ncclConfig_t> {
  using Type = stepc::nccl::ncclConfig_t;
};

// The parameters, in terms of our types.
namespace ours {
using stepc::nccl::cudaStream_t;
using stepc::nccl::ncclComm_t;
using stepc::nccl::ncclConfig_t;
using stepc::nccl::ncclDataType_t;
using stepc::nccl::ncclRedOp_t;
using stepc::nccl::ncclResult_t;
using stepc::nccl::ncclUniqueId;
#define STEPC_NCCL_SYMBOL(name, result, parameters)                            \
  using type_of_##name = result parameters;
#include "nccl/NcclSymbols.def"
} // namespace ours

#define STEPC_NCCL_SYMBOL(name, result, parameters)                            \
  static_assert(kSameSignature<decltype(::name), ours::type_of_##name>,        \
                #name " has other parameters");
#include "nccl/NcclSymbols.def"

#define STEPC_CONSTANT(name, value)                                            \
  static_assert(int(name) == (value), #name " has another value");
STEPC_NCCL_CONSTANTS(STEPC_CONSTANT)

static_assert(sizeof(::ncclUniqueId) == sizeof(ours::ncclUniqueId));
static_assert(stepc::nccl::kConfigMagic == NCCL_API_MAGIC);
static_assert(stepc::nccl::kConfigVersion == NCCL_VERSION(2, 14, 0));
static_assert(sizeof(::ncclConfig_t) >= sizeof(ours::ncclConfig_t));
#define STEPC_FIELD(name)                                                      \
  static_assert(offsetof(::ncclConfig_t, name) ==                              \
                    offsetof(ours::ncclConfig_t, name) &&                      \
                std::is_same_v<decltype(::ncclConfig_t::name),                 \
                               decltype(ours::ncclConfig_t::name)>);
STEPC_FIELD(size)
STEPC_FIELD(magic)
STEPC_FIELD(version)
STEPC_FIELD(blocking)

int main(int argc, char **argv) {
  void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library) {
    std::fprintf(stderr, "check_nccl: %s\n",
                 argc == 2 ? dlerror() : "usage: check_nccl LIBRARY");
    return 2;
  }
  int missing = 0;
  for (const char *name : {
#define STEPC_NCCL_SYMBOL(name, result, parameters) #name,
#include "nccl/NcclSymbols.def"
       })
    if (!dlsym(library, name)) {
      std::fprintf(stderr, "check_nccl: %s has no '%s'\n", argv[1], name);
      ++missing;
    }
  auto getVersion = reinterpret_cast<decltype(&ncclGetVersion)>(
      dlsym(library, "ncclGetVersion"));
  int version = 0;
  if (getVersion && getVersion(&version) == ncclSuccess)
    std::printf("%d.%d.%d\n", version / 10000, version / 100 % 100,
                version % 100);
  return missing != 0;
}
