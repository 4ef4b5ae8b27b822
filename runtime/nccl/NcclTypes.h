//===- NcclTypes.h - what NCCL's functions take -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The types and constants of NCCL's interface that we use, so that the library
// builds where no NCCL is. Enumerations are `int` here, which they are in
// memory. tools/gpu/check_nccl.sh compares all of it with nccl.h.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NCCL_NCCLTYPES_H
#define STEPC_NCCL_NCCLTYPES_H

#include <cstddef>

struct CUstream_st;
struct ncclComm;

namespace stepc::nccl {

using ncclComm_t = ::ncclComm *;
using cudaStream_t = ::CUstream_st *;
/// Enumerations of NCCL.
using ncclResult_t = int;
using ncclDataType_t = int;
using ncclRedOp_t = int;

struct ncclUniqueId {
  char internal[128];
};

/// As of version 2.14, which the fields of later ones follow: NCCL reads as
/// many bytes as `size` says, and takes defaults for what `version` did not
/// have.
struct ncclConfig_t {
  std::size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
};

/// Every constant that is used: X(name, value).
#define STEPC_NCCL_CONSTANTS(X)                                                \
  X(ncclSuccess, 0)                                                            \
  X(ncclUnhandledCudaError, 1)                                                 \
  X(ncclSystemError, 2)                                                        \
  X(ncclInternalError, 3)                                                      \
  X(ncclInvalidArgument, 4)                                                    \
  X(ncclInvalidUsage, 5)                                                       \
  X(ncclRemoteError, 6)                                                        \
  X(ncclInProgress, 7)                                                         \
  X(ncclInt8, 0)                                                               \
  X(ncclInt64, 4)                                                              \
  X(ncclFloat64, 8)                                                            \
  X(ncclSum, 0)                                                                \
  X(ncclMax, 2)                                                                \
  X(NCCL_UNIQUE_ID_BYTES, 128)

#define STEPC_NCCL_CONSTANT(name, value) inline constexpr int name = value;
STEPC_NCCL_CONSTANTS(STEPC_NCCL_CONSTANT)
#undef STEPC_NCCL_CONSTANT

/// NCCL_API_MAGIC, and the version of our ncclConfig_t.
inline constexpr unsigned int kConfigMagic = 0xcafebeef;
inline constexpr unsigned int kConfigVersion = 21400;

} // namespace stepc::nccl

#endif // STEPC_NCCL_NCCLTYPES_H
