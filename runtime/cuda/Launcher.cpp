//===- Launcher.cpp - launches on a stream --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/Launcher.h"

#include "core/Fault.h"
#include "core/Status.h"

#include "stepc/kernel_abi.h"

#include <algorithm>
#include <cstring>

using namespace stepc;
using namespace stepc::cuda;

CUresult Launcher::enqueue(const Kernel &kernel, int64_t blocks,
                           int64_t *arguments, int64_t numArguments) {
  void *addresses[1 + STEPC_STORE_WORDS];
  for (int64_t k = 0; k < numArguments; ++k)
    addresses[k] = arguments + k;
  auto size =
      static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, kernel.maxBlocks));
  ++numLaunches;
  return device->getDriver().cuLaunchKernel(kernel.function, size, 1, 1,
                                            kBlockThreads, 1, 1, 0, stream,
                                            addresses, nullptr);
}

void Launcher::launch(const Kernel &kernel, int64_t blocks, int64_t *arguments,
                      int64_t numArguments) {
  launch(kernel, blocks, arguments, numArguments, [] { return ""; });
}

void Launcher::store(CUdeviceptr to, const int64_t *words) {
  int64_t arguments[1 + STEPC_STORE_WORDS];
  arguments[0] = int64_t(to);
  std::copy_n(words, STEPC_STORE_WORDS, arguments + 1);
  launch(module->getStore(), 1, arguments, 1 + STEPC_STORE_WORDS);
  ++numStores;
}

void Launcher::set(CUdeviceptr to, int64_t word) {
  int64_t arguments[] = {int64_t(to), word};
  launch(module->getSet(), 1, arguments, 2);
  ++numStores;
}

void Launcher::copyIn(CUdeviceptr to, const void *from, size_t size) {
  staging.push_back(std::make_unique<char[]>(size));
  std::memcpy(staging.back().get(), from, size);
  device->require(device->getDriver().cuMemcpyHtoDAsync(
                      to, staging.back().get(), size, stream),
                  "cuMemcpyHtoDAsync",
                  " of " + std::to_string(size) + " bytes");
  synchronize();
  staging.pop_back();
}

void Launcher::copyOut(void *to, CUdeviceptr from, size_t size) {
  staging.push_back(std::make_unique<char[]>(size));
  device->require(device->getDriver().cuMemcpyDtoHAsync(staging.back().get(),
                                                        from, size, stream),
                  "cuMemcpyDtoHAsync",
                  " of " + std::to_string(size) + " bytes");
  synchronize();
  std::memcpy(to, staging.back().get(), size);
  staging.pop_back();
}

void Launcher::clear(CUdeviceptr to, size_t size) {
  device->require(device->getDriver().cuMemsetD8Async(to, 0, size, stream),
                  "cuMemsetD8Async", " of " + std::to_string(size) + " bytes");
}

/// The communicator gives up after its deadline; the driver tells of faults.
void Launcher::synchronize() {
  if (exchange && !exchange->wait(stream))
    fail(STEPC_COMMUNICATION_ERROR,
         "waiting for a stream of CUDA device %d: %s",
         int(device->getOrdinal()), exchange->getMessage());
  device->require(device->getDriver().cuStreamSynchronize(stream),
                  "cuStreamSynchronize");
}

bool Launcher::isCapturing() const {
  return cuda::isCapturing(*device, stream);
}

size_t Mirror::getCapacity(size_t words) const {
  words = std::max(words, known.size() + known.size() / 2);
  size_t stores = (words + STEPC_STORE_WORDS - 1) / STEPC_STORE_WORDS;
  return stores * STEPC_STORE_WORDS;
}

bool Mirror::has(const int64_t *words, size_t count) const {
  for (size_t begin = 0; begin < count; begin += STEPC_STORE_WORDS) {
    size_t size = std::min<size_t>(STEPC_STORE_WORDS, count - begin);
    if (!isKnown[begin / STEPC_STORE_WORDS] ||
        !std::equal(words + begin, words + begin + size, known.data() + begin))
      return false;
  }
  return true;
}

/// Words [begin, begin + size) of one store.
void Mirror::storeUnit(Launcher &launcher, const int64_t *words, size_t begin,
                       size_t size) {
  int64_t *own = known.data() + begin;
  uint8_t &ownIsKnown = isKnown[begin / STEPC_STORE_WORDS];
  if (ownIsKnown && (std::equal(words + begin, words + begin + size, own) ||
                     STEPC_FAULT("device-stale-words")))
    return;
  std::copy_n(words + begin, size, own);
  ownIsKnown = STEPC_FAULT("device-lost-store-known");
  launcher.store(getAddress() + begin * sizeof(int64_t), own);
  ownIsKnown = !inGraphs;
}

void Mirror::update(Launcher &launcher, const int64_t *words, size_t count) {
  for (size_t begin = 0; begin < count; begin += STEPC_STORE_WORDS)
    storeUnit(launcher, words, begin,
              std::min<size_t>(STEPC_STORE_WORDS, count - begin));
  told = count;
}

void Mirror::updatePart(Launcher &launcher, const std::vector<int64_t> &words,
                        size_t first, size_t end, bool captures) {
  inGraphs |= captures;
  for (size_t begin = first / STEPC_STORE_WORDS * STEPC_STORE_WORDS;
       begin < end; begin += STEPC_STORE_WORDS) {
    if (captures)
      isKnown[begin / STEPC_STORE_WORDS] = 0;
    storeUnit(launcher, words.data(), begin,
              std::min<size_t>(STEPC_STORE_WORDS, words.size() - begin));
  }
}

void Mirror::capture(Launcher &launcher, const int64_t *words, size_t count) {
  inGraphs = !STEPC_FAULT("device-captured-store-known");
  std::fill(isKnown.begin(), isKnown.end(), uint8_t(0));
  update(launcher, words, count);
}
