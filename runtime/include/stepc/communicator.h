//===- communicator.h - what ranks exchange, and by whom ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Types alone, for who makes a communicator of its own. Those that there are:
// simulated.h, shared_memory.h, mpi.h, nccl.h.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_COMMUNICATOR_H
#define STEPC_COMMUNICATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An axis of the grid of ranks. */
typedef struct StepcAxis {
  const char *name;
  int64_t size;
  int64_t coordinate; /* of this rank */
} StepcAxis;

typedef enum StepcReduction {
  STEPC_SUM_F64 = 0, /* elements are doubles */
  STEPC_MAX_I64 = 1  /* elements are int64_t */
} StepcReduction;

/* Elements that a group of ranks combines. */
typedef struct StepcReduceCall {
  uint64_t axes;     /* bit k: axis k of the mesh. The group: ranks that differ
                        from this one in these alone */
  int32_t reduction; /* StepcReduction */
  int32_t reserved;
  void *data; /* `count` elements of 8 bytes, reduced in place */
  int64_t count;
} StepcReduceCall;

typedef enum StepcTransferKind {
  STEPC_ALL_TO_ALL = 0, /* each rank has a piece for each rank */
  STEPC_ALL_GATHER = 1  /* each has one, for all of them */
} StepcTransferKind;

/* Bytes that the ranks of a group exchange as they are. */
typedef struct StepcTransfer {
  uint64_t axes; /* the group, as in StepcReduceCall */
  int32_t kind;  /* StepcTransferKind */
  int32_t reserved;
  const void *send; /* STEPC_ALL_TO_ALL: a piece for each rank of the group, in
                       their order, side by side; STEPC_ALL_GATHER: this rank's
                       piece, which may be in its place in `receive` already */
  void *receive;    /* of each rank of the group its piece, in their order, side
                       by side */
  const int64_t *sendBytes;    /* STEPC_ALL_TO_ALL: of each piece;
                                  STEPC_ALL_GATHER: NULL, as receiveBytes has
                                  this rank's */
  const int64_t *receiveBytes; /* for each rank of the group */
} StepcTransfer;

typedef struct StepcCommunicator {
  size_t structSize; /* sizeof(StepcCommunicator) */
  void *context;     /* passed to all functions; outlives the plan */
  /* Makes all calls of a round, in any order among them, and returns when all
   * are done: 0, or another value and a message. All ranks of a group make the
   * same calls in the same order. The results are the same bits on all ranks of
   * the group. Called on the thread that steps the plan. */
  int32_t (*reduce)(void *context, const StepcReduceCall *calls,
                    int64_t numCalls, char *message, size_t messageSize);
  /* For plans on a CUDA device: enqueues all calls of a round on the stream
   * (CUstream), data in device memory, and returns without waiting: 0, or
   * another value and a message. The device's context is the current one. The
   * calls' array is read before it returns; the stream may be capturing a
   * graph. NULL: none. Callers of an earlier version have neither this field
   * nor the next one. */
  int32_t (*enqueue)(void *context, const StepcReduceCall *calls,
                     int64_t numCalls, void *stream, char *message,
                     size_t messageSize);
  /* Waits until the work on the stream is done, at most for the communicator's
   * deadline: 0, or another value and a message. NULL: the runtime waits
   * itself, without a deadline. */
  int32_t (*wait)(void *context, void *stream, char *message,
                  size_t messageSize);
  /* What the functions return when all is done, in place of 0: for languages in
   * which a function that could not be run returns 0. */
  int32_t success;
  int32_t reserved; /* 0 */
  /* Starts a transfer and returns at once: 0 and what `finish` takes, or
   * another value and a message. All ranks of a group start the same transfers
   * in the same order; several may be under way. The structure is read before
   * it returns, its memory stays as it is until `finish`. Both are called on
   * the thread that steps the plan. NULL: none, so that no binding may have an
   * entry that crosses ranks. Callers of an earlier version have neither. */
  int32_t (*start)(void *context, const StepcTransfer *transfer, void **outWork,
                   char *message, size_t messageSize);
  /* Waits until the transfer is done, at most for the communicator's deadline,
   * and frees `work`, also where it fails: 0, or another value and a message.
   * Called once for each `work`, in any order. */
  int32_t (*finish)(void *context, void *work, char *message,
                    size_t messageSize);
  /* For plans on a CUDA device, as `enqueue`: starts a transfer in device
   * memory behind what is on the stream (CUstream) by now, on a stream of its
   * own where the communicator has one, and returns without waiting. Both are
   * called on the thread that steps the plan with the device's context current;
   * the stream may be capturing a graph. NULL: none, so that on a device no
   * binding may have an entry that crosses ranks. Callers of an earlier version
   * have neither. */
  int32_t (*enqueueStart)(void *context, const StepcTransfer *transfer,
                          void *stream, void **outWork, char *message,
                          size_t messageSize);
  /* Has the stream wait until the transfer is done, not the host, and frees
   * `work`, also where it fails: 0, or another value and a message. Called once
   * for each `work`, in any order. What the device does not come to the end of
   * is for `wait` to tell. */
  int32_t (*enqueueFinish)(void *context, void *work, void *stream,
                           char *message, size_t messageSize);
} StepcCommunicator;

#ifdef __cplusplus
}
#endif

#endif /* STEPC_COMMUNICATOR_H */
