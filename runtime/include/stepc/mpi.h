//===- mpi.h - ranks that are processes of MPI ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A communicator over MPI, in a library of its own, libstepc_mpi.so, which is
// built where there is an MPI and is for that one: the runtime knows nothing of
// it, and a program links it or opens it at run time.
//
// All calls of a round are under way together. Sums are made in the order of
// the ranks, so every rank has the same bits, in every run, and those of the
// simulated world (simulated.h).
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_MPI_H
#define STEPC_MPI_H

#include "stepc/stepc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct StepcMpiWorld StepcMpiWorld;

/* A world over MPI_COMM_WORLD, with a rank for each place of the grid of axes,
 * which are counted row-major, the last axis fastest; at most 64 axes, of which
 * 6 may be larger than 1. All processes call it together, between MPI_Init and
 * MPI_Finalize; what is called on one thread at a time needs
 * MPI_THREAD_SERIALIZED where that is not always the same.
 *
 * `deadlineMs` is how long a round may take, or `finish` of a transfer, at
 * least 1, and what is above a year is a year. After it the step ends with an
 * error that names what did not come to an end, and the world answers every
 * call with it. Making the world has no deadline. `message` gets what went
 * wrong; it may be NULL.
 *
 * STEPC_INVALID_ARGUMENT where the grid has not as many places as MPI has
 * processes, STEPC_WRONG_STATE outside of MPI_Init and MPI_Finalize,
 * STEPC_COMMUNICATION_ERROR where MPI failed. The words are in `message`:
 * stepcLastErrorMessage() knows nothing of this library. */
STEPC_API StepcStatus stepcMpiWorldCreate(const int64_t *axisSizes,
                                          int64_t numAxes, int64_t deadlineMs,
                                          StepcMpiWorld **out, char *message,
                                          size_t messageSize);

/* This process's place, and what stepcPlanSetMesh takes with axes of these
 * sizes and the place's coordinates. Valid until the world is destroyed.
 * The caller says in out->structSize how large its structure is, and gets so
 * much of it. Transfers are messages between each two ranks, of 1 GiB at most,
 * from and to the caller's memory; what one that was given up would have
 * received may still be written. STEPC_INVALID_ARGUMENT where an argument is
 * NULL, or the structure has no room for `reduce`. */
STEPC_API int64_t stepcMpiWorldGetRank(const StepcMpiWorld *world);
STEPC_API StepcStatus stepcMpiWorldGetCommunicator(StepcMpiWorld *world,
                                                   StepcCommunicator *out);

/* All processes together, when none is inside a call; not after an error of it,
 * when nothing is freed that MPI may still write. Accepts NULL. */
STEPC_API void stepcMpiWorldDestroy(StepcMpiWorld *world);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_MPI_H */
