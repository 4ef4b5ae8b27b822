//===- nccl.h - ranks with a CUDA device each, by NCCL ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A communicator for plans on CUDA devices (stepcPlanSetCuda), over NCCL 2.18
// or later: libnccl.so.2 is opened when the first function here is called. A
// round is one group of ncclAllReduce on the plan's stream; nothing waits for
// it, and it may be captured in a graph.
//
// Results are the same bits on all ranks. Sums are made in an order that is
// NCCL's, which depends on its version, on settings and on how the devices are
// connected.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NCCL_H
#define STEPC_NCCL_H

#include "stepc/stepc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct StepcNcclWorld StepcNcclWorld;

/* ncclUniqueId */
typedef struct StepcNcclUniqueId {
  char bytes[128];
} StepcNcclUniqueId;

/* All functions return STEPC_INVALID_ARGUMENT for what is refused before NCCL
 * or a device is asked; STEPC_COMMUNICATION_ERROR where there is no NCCL or it
 * failed; STEPC_DEVICE_ERROR where there is no driver or it failed, and
 * STEPC_OUT_OF_MEMORY. stepcLastErrorMessage() has the words. */

/* What all ranks of a world are given; one of them gets it, and tells the
 * others. */
STEPC_API StepcStatus stepcNcclGetUniqueId(StepcNcclUniqueId *out);

/* A world with a rank for each place of the grid of axes, which are counted
 * row-major, the last axis fastest; at most 64 axes, of which 6 may be larger
 * than 1, and 65536 places. All ranks call it together, each with a device of
 * its own, whose primary context their plans have. It makes a communicator of
 * NCCL for each set of axes that are larger than 1.
 *
 *   id          a world's; not used again
 *   deadlineMs  how long making the communicators, each of them, and waiting
 *               for a stream may take, at least 1, and what is above a year is
 *               a year. After it, and after any error, the rank's communicators
 *               are aborted, for which a call waits once more as long at most,
 *               and it answers every call with an error that names what did not
 *               come to an end
 */
STEPC_API StepcStatus stepcNcclWorldCreate(const int64_t *axisSizes,
                                           int64_t numAxes, int64_t rank,
                                           const StepcNcclUniqueId *id,
                                           int32_t device, int64_t deadlineMs,
                                           StepcNcclWorld **out);

/* The same of the ranks of a caller's communicator (ncclComm_t), which are
 * those of the grid. It is split, and neither used after the call nor
 * destroyed. All its ranks call it together, when nothing of it is in progress;
 * where it is a blocking one, making the first communicators has no deadline.
 * After an error a split of it may be in progress for ever: abort it. */
STEPC_API StepcStatus stepcNcclWorldBorrow(const int64_t *axisSizes,
                                           int64_t numAxes, void *comm,
                                           int64_t deadlineMs,
                                           StepcNcclWorld **out);

/* This rank's place, and what stepcPlanSetMesh takes with axes of these sizes
 * and the place's coordinates. `out->structSize` says how large the caller's
 * structure is, and gets so much of it; of 0 it gets what the first version
 * had, which has no transfers. Used by one thread at a time; valid until the
 * world is destroyed. */
STEPC_API int64_t stepcNcclWorldGetRank(const StepcNcclWorld *world);
STEPC_API StepcStatus stepcNcclWorldGetCommunicator(StepcNcclWorld *world,
                                                    StepcCommunicator *out);

/* All ranks together, when plans and graphs that have used it are destroyed;
 * waits for the others, at most for the deadline, and as long once more to
 * abort what did not come to its end. Accepts NULL. */
STEPC_API void stepcNcclWorldDestroy(StepcNcclWorld *world);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_NCCL_H */
