//===- shared_memory.h - ranks that are processes of one host -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A communicator for processes that can map the same memory: those of one host,
// or of containers that see each other's processes. What crosses is copied
// into that memory by one rank and out of it by the others; no socket is in
// between. Sums are made in the order of the ranks, so every rank has the same
// bits, in every run, and those of the simulated world (simulated.h).
//
// A rank that has ended, or left its group, or given an exchange up, the others
// name as soon as they wait for it; one that does not come, after the deadline.
// After an error a group answers every call with it.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_SHARED_MEMORY_H
#define STEPC_SHARED_MEMORY_H

#include "stepc/stepc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ranks that exchange, from 0 on. A process has one object for a group. */
typedef struct StepcSharedGroup StepcSharedGroup;

/* The group's memory, 2 to 16 MiB of it and beyond 512 ranks 24, and this
 * process as rank 0 of `numRanks`, 1 to 1024. The memory has no name in any
 * file system, and is gone when the last process lets go of it. `names`: a
 * number for each rank by which messages call it; NULL: their places in the
 * group. STEPC_OUT_OF_MEMORY where the host has not so much. */
STEPC_API StepcStatus stepcSharedGroupCreate(int64_t numRanks,
                                             const int64_t *names,
                                             StepcSharedGroup **out);

/* The words by which the other ranks find the memory, with the final 0 at most
 * `size` bytes; 96 are enough. For rank 0. */
STEPC_API StepcStatus stepcSharedGroupGetPlace(const StepcSharedGroup *group,
                                               char *place, size_t size);

/* This process as another rank, each once, while rank 0 lives; a process is one
 * rank of a group.
 * STEPC_COMMUNICATION_ERROR where the memory cannot be reached from here, as
 * from another host: what is there then is told apart by a random number in
 * `place`. */
STEPC_API StepcStatus stepcSharedGroupOpen(const char *place, int64_t rank,
                                           const int64_t *names,
                                           StepcSharedGroup **out);

/* How long a round may take, or `finish` of a transfer; at least 1, and what is
 * above a year is a year; 60000 at first. Between calls. */
STEPC_API StepcStatus stepcSharedGroupSetDeadline(StepcSharedGroup *group,
                                                  int64_t milliseconds);

/* The communicator of a mesh whose axes together are the group, in the order of
 * its ranks: all calls are over all of them, whatever their axes. Valid until
 * the group is destroyed. The caller says in out->structSize how large its
 * structure is, and gets so much of it. A rank copies in `start` what finds
 * room, and goes on in each later call of any group of its process: nothing
 * crosses while all ranks compute. */
STEPC_API StepcStatus stepcSharedGroupGetCommunicator(StepcSharedGroup *group,
                                                      StepcCommunicator *out);

/* Leaves the group. In a process that was forked it only lets go of the memory.
 * Accepts NULL. */
STEPC_API void stepcSharedGroupDestroy(StepcSharedGroup *group);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_SHARED_MEMORY_H */
