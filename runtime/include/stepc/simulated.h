//===- simulated.h - ranks that are threads of one process ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A communicator without a network, for tests and for trying out a layout: W
// ranks, each a thread with a plan of its own, combine their parts in memory.
// Sums are made in the order of the ranks, so every rank has the same bits, in
// every run.
//
// What one rank does wrong all are told: a call that others of its group do not
// make, of another size or reduction, and a rank that does not come. After an
// error the world answers every call with it.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_SIMULATED_H
#define STEPC_SIMULATED_H

#include "stepc/stepc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct StepcSimulatedWorld StepcSimulatedWorld;

/* A world with a rank for each place of the grid of axes: 1 to 4096 in all. */
STEPC_API StepcStatus stepcSimulatedWorldCreate(const int64_t *axisSizes,
                                                int64_t numAxes,
                                                StepcSimulatedWorld **out);

/* The communicator of a rank, for stepcPlanSetMesh with axes of these sizes.
 * Ranks are counted row-major over the axes, the last one fastest. Valid until
 * the world is destroyed. The caller says in out->structSize how large its
 * structure is, and gets so much of it. Transfers are made when the last rank
 * of the group has started them. */
STEPC_API StepcStatus stepcSimulatedWorldGetCommunicator(
    StepcSimulatedWorld *world, int64_t rank, StepcCommunicator *out);

/* What each call costs beside its work; 0 at first. Of a transfer it is waited
 * for by `finish`, from when the last rank has started it. */
STEPC_API StepcStatus stepcSimulatedWorldSetDelay(StepcSimulatedWorld *world,
                                                  int64_t microseconds);

/* How long a rank waits for the others of its group before it gives up; 60000
 * at first. */
STEPC_API StepcStatus stepcSimulatedWorldSetDeadline(StepcSimulatedWorld *world,
                                                     int64_t milliseconds);

/* What a rank has asked for since the world was made. */
typedef struct StepcSimulatedCounters {
  size_t structSize; /* sizeof(StepcSimulatedCounters), set by the caller */
  int64_t rounds;    /* calls of `reduce` */
  int64_t calls;     /* in them, and transfers */
  int64_t bytes;     /* of the rank's elements in them, and what it sends to
                        others in transfers */
} StepcSimulatedCounters;
STEPC_API StepcStatus
stepcSimulatedWorldGetCounters(const StepcSimulatedWorld *world, int64_t rank,
                               StepcSimulatedCounters *out);

/* When no rank is inside a call. Accepts NULL. */
STEPC_API void stepcSimulatedWorldDestroy(StepcSimulatedWorld *world);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_SIMULATED_H */
