//===- HostMemory.h - host memory that a device reaches ---------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// States of parameters on a device may lie in page-locked memory of the host,
// which has the same address for both. Kernels read and write it in place: a
// step moves over the bus what it reads and writes of it, both ways at once,
// and takes no memory of the device. A launch that does nothing, as in a step
// that is skipped, moves nothing.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_HOSTMEMORY_H
#define STEPC_CUDA_HOSTMEMORY_H

#include "stepc/cuda.h"

#include <cstdint>

namespace stepc::cuda {

/// What stepcCudaTakeHost does.
DLManagedTensor *takeHost(const StepcCudaConfig &config, int64_t bytes);
/// What stepcCudaIsHost does.
bool isHost(const StepcCudaConfig &config, uintptr_t address);

} // namespace stepc::cuda

#endif // STEPC_CUDA_HOSTMEMORY_H
