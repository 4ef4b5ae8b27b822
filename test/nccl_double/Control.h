/*===- Control.h - what tests tell the double of NCCL, and ask it ----------===
 *
 * Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * Exported beside NCCL's functions. The double is a libnccl.so.2 for ranks that
 * are threads of this process, each with a device of the driver's double:
 *
 * - The calls of a group and communicator are one kernel on the stream. It
 *   begins when all before it on the stream is done and ends when those of all
 *   ranks have begun; what is behind it waits. A communicator's kernels run in
 *   the order in which they were enqueued, on whatever streams.
 * - Sums are made in the order of a ring, which is another one for each part of
 *   the elements; the bits are the same on all ranks.
 * - What is in progress comes to its end some polls later: a communicator that
 *   is made, split or finalized, and a group, whose kernels are not on the
 *   stream before.
 * - What NCCL leaves undefined, or answers by hanging, is noted as a fault:
 *   handles that are gone, calls of ranks that differ, a group in a group's
 *   place. Kernels of calls that differ never end.
 */
#ifndef STEPC_TEST_NCCL_DOUBLE_CONTROL_H
#define STEPC_TEST_NCCL_DOUBLE_CONTROL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Forgets all communicators, counters and faults; before cudaDoubleReset. */
void ncclDoubleReset(void);
/* Makes the n-th call from now on of a function, n from 1, return `error`. */
void ncclDoubleFail(const char *function, int64_t n, int32_t error);
/* Calls of a function since the reset, and of all functions. */
int64_t ncclDoubleCalls(const char *function);
int64_t ncclDoubleAllCalls(void);
/* Communicators that are alive. */
int64_t ncclDoubleComms(void);
/* All communicators of a rank, as its first one counts it, report the error
 * from now on, and their kernels do not end. */
void ncclDoubleReport(int32_t rank, int32_t error);
/* 1: who aborts is seen by the other ranks, which report ncclRemoteError; 0,
 * as at first: they wait. */
void ncclDoubleTellAborts(int32_t tell);
/* 1: the first group of a communicator is in progress until all its ranks have
 * begun theirs; 0, as at first: it is not. NCCL does the one or the other. */
void ncclDoubleConnectLazily(int32_t lazily);
/* What was done that must not be; "" when nothing was. */
const char *ncclDoubleFault(void);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_TEST_NCCL_DOUBLE_CONTROL_H */
