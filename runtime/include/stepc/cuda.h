//===- cuda.h - plans on CUDA devices ------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a plan is told that is not for the processor: docs/cuda.md.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_H
#define STEPC_CUDA_H

#include "stepc/stepc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a plan runs that is not for the processor. */
typedef struct StepcCudaConfig {
  size_t structSize; /* sizeof(StepcCudaConfig) */
  int32_t device;    /* its number, as in DLDevice::device_id */
  int32_t reserved0; /* must be 0 */
  void *context;     /* CUcontext of the device that outlives the plan; NULL:
                        the primary one, which the plan retains */
  void *stream;      /* CUstream of the context; NULL: its default stream. With
                        several ranks it outlives the plan, which waits for it
                        when it is destroyed */
} StepcCudaConfig;

/* Says, before anything is bound, that the tensors of the plan are in memory of
 * a CUDA device (kDLCUDA): parameters, gradients and states. Steps are enqueued
 * on the stream and return before they are done; they wait for nothing and may
 * be captured in a graph, but where states lie in a store. STEPC_DEVICE_ERROR
 * where there is no driver, STEPC_UNSUPPORTED_TARGET where the package has no
 * code for the device (docs/cuda.md). */
STEPC_API StepcStatus stepcPlanSetCuda(StepcPlan *plan,
                                       const StepcCudaConfig *config);

/* The stream of the steps from now on. Work on the one before is the caller's
 * to order with it. With several ranks the new one outlives the plan as that of
 * StepcCudaConfig does, and the one before may go when its work is done. */
STEPC_API StepcStatus stepcPlanSetStream(StepcPlan *plan, void *stream);

/* Enqueues what has changed since the last step, addresses and
 * hyper-parameters, as the next step would do itself. To be called before a
 * step is captured, and before a graph with it is launched after a change. */
STEPC_API StepcStatus stepcPlanUpload(StepcPlan *plan);

/* Page-locked memory of the host for states, which kernels of the device read
 * and write in place, over the bus: bound, it is as memory of the device, and
 * has its order of a stream. `outTensor` gets a vector of `bytes` bytes
 * (kDLUInt of 8 bits, kDLCUDA) that are not initialized; its deleter gives the
 * memory back, for which drivers wait for all that is enqueued. Not while the
 * stream of `config` captures a graph; else its stream means nothing. */
STEPC_API StepcStatus stepcCudaTakeHost(const StepcCudaConfig *config,
                                        int64_t bytes,
                                        struct DLManagedTensor **outTensor);

/* Whether an address is in page-locked memory of the host: 1, else 0. */
STEPC_API StepcStatus stepcCudaIsHost(const StepcCudaConfig *config,
                                      const void *address, int32_t *outIsHost);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_CUDA_H */
