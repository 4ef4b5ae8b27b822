//===- HostCalls.h - what a device leaves to the host -----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decompositions are the processor's, so that they have its bits. A launch
// writes matrices into page-locked memory, with a record for each tensor
// (kernel_abi.h); a function of the host on the stream makes of them what the
// record says; a later launch reads that. Neither is copied: where a call is
// not due its launch writes nothing, and the function finds no record. It calls
// nothing of the driver, graphs have it as any launch, and the caller's thread
// waits for none of it.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_HOSTCALLS_H
#define STEPC_CUDA_HOSTCALLS_H

#include "cuda/Device.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace stepc::cuda {

/// Page-locked memory of the host, which has one address for both.
class PinnedBlock {
public:
  /// `what` it is for, as messages say. The device's context is current.
  PinnedBlock(std::shared_ptr<const Device> device, size_t size,
              const char *what);
  ~PinnedBlock();
  PinnedBlock(const PinnedBlock &) = delete;
  PinnedBlock &operator=(const PinnedBlock &) = delete;

  uintptr_t getAddress() const { return reinterpret_cast<uintptr_t>(address); }
  size_t getSize() const { return size; }

private:
  std::shared_ptr<const Device> device;
  void *address = nullptr;
  size_t size;
};

class HostCalls {
public:
  /// On so many threads, as many as there are processors where it is 0.
  HostCalls(size_t numClasses, int numThreads);

  /// Has the records of a class be so many, from an address on, which are
  /// zeros. Functions that were enqueued go on with those from before.
  void setRecords(size_t rowClass, uintptr_t address, int64_t rows);
  /// Takes what so many bytes of a routine's memory need. No function may be
  /// enqueued.
  void reserve(size_t routineBytes);
  size_t getRoutineBytes() const { return routineBytes; }
  int64_t getBytes() const { return int64_t(routineBytes * memory.size()); }

  /// What is enqueued for a class, and its argument.
  static void run(void *records) noexcept;
  void *getArgument(size_t rowClass) const { return current[rowClass]; }

private:
  struct Records {
    const HostCalls *calls;
    int64_t *words;
    int64_t rows;
  };
  class Queue;

  void run(const Records &records) const noexcept;

  size_t numThreads;
  size_t routineBytes = 0;
  /// For each thread.
  std::vector<std::unique_ptr<char[]>> memory;
  /// All that there were: a graph may have any of them.
  std::vector<std::unique_ptr<Records>> all;
  std::vector<Records *> current;
};

} // namespace stepc::cuda

#endif // STEPC_CUDA_HOSTCALLS_H
