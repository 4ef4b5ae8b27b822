//===- Launcher.h - launches on a stream ----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_LAUNCHER_H
#define STEPC_CUDA_LAUNCHER_H

#include "core/Exchange.h"
#include "cuda/Module.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace stepc::cuda {

/// A double as a word of a list.
inline int64_t getBits(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// Enqueues kernels of a module on the stream that the caller named last. The
/// device's context is current in all calls.
class Launcher {
public:
  Launcher(std::shared_ptr<const Device> device,
           std::shared_ptr<const Module> module, CUstream stream)
      : device(std::move(device)), module(std::move(module)), stream(stream) {}

  const std::shared_ptr<const Device> &getDevice() const { return device; }
  const Module &getModule() const { return *module; }
  CUstream getStream() const { return stream; }
  void setStream(CUstream newStream) { stream = newStream; }

  /// Launches so many blocks, or fewer: no more than the device holds.
  /// `arguments` are those of the kernel; they are copied. `what` the launch is
  /// for: " for 3 tensors", or null.
  template <typename Describe>
  void launch(const Kernel &kernel, int64_t blocks, int64_t *arguments,
              int64_t numArguments, Describe &&describe);
  void launch(const Kernel &kernel, int64_t blocks, int64_t *arguments,
              int64_t numArguments);

  /// Enqueues that STEPC_STORE_WORDS words are stored at the address.
  void store(CUdeviceptr to, const int64_t *words);
  /// And that one is.
  void set(CUdeviceptr to, int64_t word);

  /// Copies, and waits until all that is on the stream is done.
  void copyIn(CUdeviceptr to, const void *from, size_t size);
  void copyOut(void *to, CUdeviceptr from, size_t size);
  void clear(CUdeviceptr to, size_t size);
  void synchronize();
  /// The exchange whose communicator waits for the stream, from now on.
  void setExchange(Exchange *own) { exchange = own; }

  /// Whether the stream captures a graph.
  bool isCapturing() const;

  int64_t getNumLaunches() const { return numLaunches; }
  int64_t getNumStores() const { return numStores; }

private:
  CUresult enqueue(const Kernel &kernel, int64_t blocks, int64_t *arguments,
                   int64_t numArguments);

  std::shared_ptr<const Device> device;
  std::shared_ptr<const Module> module;
  CUstream stream;
  Exchange *exchange = nullptr;
  /// What copies read and write on the host. One that could not be waited for
  /// may be made later: its memory is kept.
  std::vector<std::unique_ptr<char[]>> staging;
  int64_t numLaunches = 0;
  int64_t numStores = 0;
};

/// Words in device memory that the host decides: tables, lists, blocks of
/// hyper-parameters. Knows what the device has, or will have when the stream
/// comes to it, and stores what differs and nothing else. So nothing that can
/// change is read by the device from the host's memory, and no call waits.
///
/// What a captured graph stores is done whenever the graph is launched, which
/// nobody tells. So words that graphs store are not known from then on: each
/// step and each other graph stores them again.
class Mirror {
public:
  explicit Mirror(const char *what) : what(what) {}

  /// Takes memory for so many words. Where it has to be taken anew, the address
  /// changes and nothing is known any more; `replace` is called with the block
  /// before, which it may take, and nothing has changed where it throws.
  template <typename Replace>
  void reserve(const std::shared_ptr<const Device> &device, size_t words,
               Replace &&replace);

  CUdeviceptr getAddress() const { return block ? block->getAddress() : 0; }
  size_t getBytes() const { return block ? block->getSize() : 0; }

  /// Whether the device has these words at the begin.
  bool has(const int64_t *words, size_t count) const;
  /// Whether it has, and was told of no more.
  bool hasJust(const int64_t *words, size_t count) const {
    return count == told && has(words, count);
  }
  /// Enqueues what makes them so.
  void update(Launcher &launcher, const int64_t *words, size_t count);
  /// The same of words [first, end) alone, without telling how many there are;
  /// `captures`: in a graph.
  void updatePart(Launcher &launcher, const std::vector<int64_t> &words,
                  size_t first, size_t end, bool captures);
  /// The same in a graph, which stores them all.
  void capture(Launcher &launcher, const int64_t *words, size_t count);

  /// What the device has, for what is changed there by kernels.
  std::vector<int64_t> &getKnown() { return known; }
  /// How many words the last update had.
  size_t getTold() const { return told; }

private:
  void storeUnit(Launcher &launcher, const int64_t *words, size_t begin,
                 size_t size);
  /// The size of a block for so many words, half as much again, so that growing
  /// step by step costs little.
  size_t getCapacity(size_t words) const;

  const char *what;
  std::unique_ptr<DeviceBlock> block;
  /// In whole stores of words; the device has those of a store that is known.
  std::vector<int64_t> known;
  std::vector<uint8_t> isKnown;
  size_t told = 0;
  /// Whether graphs store the words.
  bool inGraphs = false;
};

template <typename Replace>
void Mirror::reserve(const std::shared_ptr<const Device> &device, size_t words,
                     Replace &&replace) {
  if (words <= known.size())
    return;
  size_t capacity = getCapacity(words);
  std::vector<int64_t> newKnown(capacity);
  std::vector<uint8_t> newIsKnown(capacity / STEPC_STORE_WORDS);
  auto newBlock =
      std::make_unique<DeviceBlock>(device, capacity * sizeof(int64_t), what);
  replace(block);
  block = std::move(newBlock);
  known = std::move(newKnown);
  isKnown = std::move(newIsKnown);
  told = 0;
  inGraphs = false;
}

template <typename Describe>
void Launcher::launch(const Kernel &kernel, int64_t blocks, int64_t *arguments,
                      int64_t numArguments, Describe &&describe) {
  CUresult result = enqueue(kernel, blocks, arguments, numArguments);
  if (result != CUDA_SUCCESS)
    device->require(result, "cuLaunchKernel",
                    " of '" + kernel.name + "'" + describe());
}

} // namespace stepc::cuda

#endif // STEPC_CUDA_LAUNCHER_H
