//===- Cuda.cpp - the C ABI of the host's memory for devices --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Status.h"
#include "cuda/HostMemory.h"

using namespace stepc;

StepcStatus stepcCudaTakeHost(const StepcCudaConfig *config, int64_t bytes,
                              DLManagedTensor **outTensor) {
  return guarded([&] {
    requireNotNull(config, "config");
    requireNotNull(outTensor, "outTensor");
    *outTensor = cuda::takeHost(*config, bytes);
  });
}

StepcStatus stepcCudaIsHost(const StepcCudaConfig *config, const void *address,
                            int32_t *outIsHost) {
  return guarded([&] {
    requireNotNull(config, "config");
    requireNotNull(outIsHost, "outIsHost");
    *outIsHost =
        int32_t(cuda::isHost(*config, reinterpret_cast<uintptr_t>(address)));
  });
}
