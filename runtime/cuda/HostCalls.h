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
#include <mutex>
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
  /// On so many threads, as many as OpenMP says where it is 0.
  HostCalls(size_t numClasses, int numThreads);

  struct Records;

  /// So many records from an address on, which are zeros.
  Records *addRecords(uintptr_t address, int64_t rows);
  /// Has them be a class's. Functions that were enqueued go on with those from
  /// before.
  void setRecords(size_t rowClass, Records *records) noexcept {
    current[rowClass] = records;
  }
  /// Takes so many bytes for each thread that has something to do where a call
  /// has so many matrices. A function that runs keeps what it works in.
  void reserve(size_t routineBytes, size_t matrices);
  int64_t getBytes() const;

  /// What is enqueued for a class, and its argument.
  static void run(void *records) noexcept;
  void *getArgument(size_t rowClass) const { return current[rowClass]; }

  struct Records {
    const HostCalls *calls;
    int64_t *words;
    int64_t rows;
  };

private:
  class Queue;
  /// What routines work in: for each thread.
  struct Memory {
    size_t bytes = 0;
    std::vector<std::unique_ptr<char[]>> ofThreads;
  };

  void run(const Records &records) const noexcept;

  size_t numThreads;
  /// Of a graph on another stream a function may run while more is taken.
  mutable std::mutex mutex;
  std::shared_ptr<const Memory> memory = std::make_shared<Memory>();
  /// All that there were: a graph may have any of them.
  std::vector<std::unique_ptr<Records>> all;
  std::vector<Records *> current;
};

} // namespace stepc::cuda

#endif // STEPC_CUDA_HOSTCALLS_H
