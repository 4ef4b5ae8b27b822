//===- Engine.h - runs steps on a CUDA device
//-------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step is a list of launches, made of the manifest's schedule: for each
// segment the scalars of its cohorts, then each kernel over the rows of each
// class; at the end the counts. It is enqueued on the caller's stream; nothing
// waits, allocates, or copies from the host's memory. Before it, what the
// device does not know yet is stored there, as arguments of launches.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_ENGINE_H
#define STEPC_CUDA_ENGINE_H

#include "core/Package.h"
#include "core/TensorView.h"
#include "cuda/Launcher.h"

#include "stepc/kernel_abi.h"
#include "stepc/stepc.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace stepc::cuda {

/// The rows of a class that a step takes.
struct ListedRows {
  size_t rowClass;
  const int64_t *table;
  int64_t tableWords;
  int64_t rowWords;
  const StepcChunk *chunks;
  int64_t numChunks;
  /// The rows, in chunks that name no elements: what finishes work on.
  const StepcChunk *finishes;
  int64_t numFinishes;
};

/// Entries [begin, end) of the list of scalars are of one variant.
struct ScalarRange {
  size_t variant;
  int64_t begin;
  int64_t end;
};

/// What a step works on, as the host has it.
struct DeviceStep {
  std::vector<ListedRows> rows;
  /// Whether chunks have changed since the last step.
  bool chunksChanged = true;
  /// Arguments of scalar functions, entry by entry.
  std::vector<int64_t> scalars;
  std::vector<ScalarRange> ranges;
  /// Hyper-parameters and results of all groups, bits of doubles.
  std::vector<int64_t> groups;
};

/// Which tensors the rows of a class are, for messages: " for 2 tensors, the
/// first 'w'".
using DescribeRows = std::function<std::string(size_t rowClass)>;

class Engine {
public:
  /// Refuses packages that need what has no launches here.
  Engine(std::shared_ptr<const Package> package, const StepcCudaConfig &config);

  int32_t getOrdinal() const { return device->getOrdinal(); }
  void setStream(void *stream);
  bool isCapturing();

  // Memory; none of it is taken in steps.
  void reserveRows(size_t rowClass, int64_t tableWords, int64_t numChunks,
                   int64_t numFinishes);
  void reserveWorkspace(size_t bytes);
  void reserveCohorts(size_t cohorts, size_t slots);
  void reserveGroups(size_t words);
  /// A block of zeros.
  DeviceBlock allocate(size_t size, const std::string &what);
  void write(CUdeviceptr to, const void *from, size_t size);
  /// Refuses an address that is in no memory of the device.
  void requireMemory(uintptr_t address, const OperandName &name) const;
  CUdeviceptr getScalars(int32_t cohort) const;
  CUdeviceptr getGroups() const { return groups.getAddress(); }

  /// Whether the device has the scalars' list and the groups.
  bool hasScalars(const DeviceStep &step) const;
  /// Stores what the device does not have.
  void upload(const DeviceStep &step);
  /// Runs a whole step, and counts it on the device.
  void run(const DeviceStep &step, const DescribeRows &describe);
  /// The parts of one, which is not counted on the device.
  void runScalars(const DeviceStep &step);
  void runKernels(const DeviceStep &step, const DescribeRows &describe);
  /// Tells the engine that the device has counted a step in the list, of so
  /// many words.
  void countKnown(size_t words);
  /// Reads so many words of the list; waits for the stream.
  void readScalars(int64_t *words, size_t count);

  /// Whether tensors may have been updated in part.
  bool isBroken() const { return broken; }

  int64_t getBytes() const;
  int64_t getNumLaunches() const { return launcher.getNumLaunches(); }
  int64_t getNumStores() const { return launcher.getNumStores(); }

private:
  /// One launch of a step. Its kernel writes tensors where `rowClass` is that
  /// of rows.
  struct Launch {
    const Kernel *kernel;
    int64_t blocks;
    int64_t rowClass;
    int64_t numArguments;
    int64_t arguments[6];
  };

  void requireKernels() const;
  void storeChunks(Mirror &list, const StepcChunk *own, int64_t size);
  void addScalars(const DeviceStep &step, int64_t segment);
  void addKernels(const DeviceStep &step, int64_t segment);
  void addRows(const ListedRows &rows, int64_t segment);
  void addAdvance(const DeviceStep &step);
  void enqueue(const DescribeRows &describe);
  template <typename Work>
  void guard(Work &&work);

  std::shared_ptr<const Package> package;
  std::shared_ptr<const Device> device;
  Launcher launcher;
  Mirror groups{"hyper-parameters"};
  Mirror scalars{"the list of scalars"};
  /// Two for each variant, as Plan's classes.
  std::vector<Mirror> tables;
  std::vector<Mirror> chunks;
  std::vector<Mirror> finishes;
  /// One for all launches: those of a class are done before the next one's.
  std::unique_ptr<DeviceBlock> workspace;
  std::unique_ptr<DeviceBlock> scalarRows;
  size_t scalarSlots = 0;
  std::vector<Launch> launches;
  bool broken = false;
};

} // namespace stepc::cuda

#endif // STEPC_CUDA_ENGINE_H
