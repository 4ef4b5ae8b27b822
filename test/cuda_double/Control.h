/*===- Control.h - what tests tell the double, and ask it ------------------===
 *
 * Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * Exported beside the driver's functions. The double is a libcuda.so.1 whose
 * devices are memory and threads of this process:
 *
 * - Work is done when the host waits or asks for it and no sooner: a launch is
 * put into the queue of its stream. Waiting runs the queues in an order that
 * the seed decides, among those that streams permit.
 * - Device memory cannot be touched outside of that: its pages are protected.
 *   Kernels touch nothing but allocations of their own device; each access is
 *   checked. A fault ends the context, as on a device.
 * - Kernels are those of the package, compiled for the processor by
 *   stepc-cuda-host. The threads of a block are fibers.
 */
#ifndef STEPC_TEST_CUDA_DOUBLE_CONTROL_H
#define STEPC_TEST_CUDA_DOUBLE_CONTROL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Forgets all contexts, memory, queues, counters and faults, and starts with so
 * many devices. */
void cudaDoubleReset(int32_t devices, uint64_t seed);
/* The compute capability of the devices, 90 for 9.0. */
void cudaDoubleSetCapability(int32_t capability);
/* Makes the n-th call from now on of a function return `error`, n from 1; as
 * the driver's documentation names it, "cuMemAlloc". With launches counted by
 * the name of a kernel: "cuLaunchKernel:name". */
void cudaDoubleFail(const char *function, int64_t n, int32_t error);
/* Calls of a function, or of "cuLaunchKernel:name", since the reset. */
int64_t cudaDoubleCalls(const char *function);
/* All calls. */
int64_t cudaDoubleAllCalls(void);
/* What is alive: allocations, modules, events, and how often primary contexts
 * are retained. */
int64_t cudaDoubleAllocations(void);
int64_t cudaDoubleModules(void);
int64_t cudaDoubleEvents(void);
int64_t cudaDoubleRetained(void);
/* How many entries the calling thread's stack of contexts has. */
int64_t cudaDoubleContextDepth(void);
/* Launches, copies and memsets that no one has waited for. */
int64_t cudaDoublePending(void);
/* How long the host may wait for what other threads have to enqueue, 20000 ms
 * at first; longer is a fault. */
void cudaDoubleSetPatience(int64_t milliseconds);
/* Puts a call of the host onto a stream of the current context, as another
 * library's kernels: in a graph each launch makes it. It may touch device
 * memory and call nothing of the double. */
int32_t cudaDoubleEnqueue(void *stream, void (*function)(void *),
                          void *argument);
/* Work of several ranks: `begin` is called when it comes onto the stream and
 * makes what the other gets; `ready` when all before it is done, as often as
 * need be, until it has done the work and returns what is not 0. They may be
 * called by any thread. */
int32_t cudaDoubleEnqueueWork(void *stream, void *(*begin)(void *),
                              int32_t (*ready)(void *), void *argument);
/* Copies what lies in all page-locked memory of the host, one allocation behind
 * the other, where it is of so many bytes or fewer; returns how many it is. */
int64_t cudaDoublePinned(void *target, int64_t size);
/* Opens all device memory to the host, or protects it again: between the two
 * the host stands for operations of others that a stream has run. */
void cudaDoubleOpen(int32_t open);
/* The kernel that faulted, with the reason; "" when none did. */
const char *cudaDoubleFault(void);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_TEST_CUDA_DOUBLE_CONTROL_H */
