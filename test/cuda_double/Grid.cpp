//===- Grid.cpp - launches, the threads of a block as fibers
//----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Blocks run one after the other, in any order: they cannot wait for each
// other. The threads of a block are fibers on one thread of the processor. Each
// runs to its end or to a barrier, where the next one goes on; when all that
// are left have come to it, they go on from there, in another order.
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include "Image.h"

#include <algorithm>
#include <sys/mman.h>
#include <ucontext.h>

using namespace cuda_double;

namespace {

constexpr size_t kStackBytes = 64 * 1024;

struct Fiber {
  ucontext_t context;
  bool waits = false;
  bool done = false;
};

/// The launch under way: there is one at a time, under State::mutex.
struct Grid {
  const Operation *launch = nullptr;
  CUcontext device = nullptr;
  std::vector<Fiber> fibers;
  char *stacks = nullptr;
  size_t numStacks = 0;
  ucontext_t scheduler;
  int32_t block = 0;
  int32_t thread = 0;
  CUresult result = CUDA_SUCCESS;
  /// Of the access before, which the next one mostly is beside.
  CUdeviceptr begin = 0, end = 0;
} grid;

int32_t getThread() { return grid.thread; }
int32_t getBlock() { return grid.block; }
int32_t getBlocks() { return grid.launch->blocks; }

void leave() {
  swapcontext(&grid.fibers[grid.thread].context, &grid.scheduler);
}

/// Ends the thread; the scheduler ends the launch.
void stop(CUresult result, const std::string &reason) {
  grid.result = result;
  getState().fault = "kernel '" + grid.launch->function->name + "': " + reason;
  grid.fibers[grid.thread].done = true;
  leave();
}

void announceAccess(int64_t address, int64_t bytes, int64_t alignment) {
  auto from = CUdeviceptr(address);
  if (alignment && from % CUdeviceptr(alignment) != 0)
    stop(CUDA_ERROR_MISALIGNED_ADDRESS,
         "an access of " + std::to_string(bytes) + " bytes at no multiple of " +
             std::to_string(alignment));
  if (from >= grid.begin && from + CUdeviceptr(bytes) <= grid.end)
    return;
  const Allocation *allocation = findAllocation(from, size_t(bytes));
  if (!allocation)
    stop(CUDA_ERROR_ILLEGAL_ADDRESS, "an access of " + std::to_string(bytes) +
                                         " bytes that is in no allocation");
  if (allocation->context->device != grid.device->device)
    stop(CUDA_ERROR_ILLEGAL_ADDRESS, "an access to another device's memory");
  grid.begin = std::prev(getState().allocations.upper_bound(from))->first;
  grid.end = grid.begin + allocation->size;
}

void waitForBlock() {
  grid.fibers[grid.thread].waits = true;
  leave();
}

void runThread() {
  grid.launch->function->code(grid.launch->arguments.data());
  grid.fibers[grid.thread].done = true;
  leave();
}

void startFibers(int32_t threads) {
  if (grid.numStacks < size_t(threads)) {
    if (grid.stacks)
      munmap(grid.stacks, grid.numStacks * kStackBytes);
    grid.stacks = static_cast<char *>(
        mmap(nullptr, size_t(threads) * kStackBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    grid.numStacks = size_t(threads);
  }
  grid.fibers.resize(size_t(threads));
  for (int32_t t = 0; t < threads; ++t) {
    Fiber &fiber = grid.fibers[t];
    fiber.waits = fiber.done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = grid.stacks + size_t(t) * kStackBytes;
    fiber.context.uc_stack.ss_size = kStackBytes;
    makecontext(&fiber.context, runThread, 0);
  }
}

/// One block, from barrier to barrier.
void runBlock(const std::vector<int32_t> &order) {
  startFibers(int32_t(order.size()));
  for (bool left = true; left;) {
    left = false;
    for (Fiber &fiber : grid.fibers)
      fiber.waits = false;
    for (int32_t thread : order) {
      if (grid.fibers[thread].done)
        continue;
      grid.thread = thread;
      swapcontext(&grid.scheduler, &grid.fibers[thread].context);
      if (grid.result != CUDA_SUCCESS)
        return;
      left |= !grid.fibers[thread].done;
    }
  }
}

} // namespace

void *const *cuda_double::getServices() {
  static void *const services[SERVICES] = {
      reinterpret_cast<void *>(getThread), reinterpret_cast<void *>(getBlock),
      reinterpret_cast<void *>(getBlocks),
      reinterpret_cast<void *>(announceAccess),
      reinterpret_cast<void *>(waitForBlock)};
  return services;
}

CUresult cuda_double::runGrid(CUcontext context, const Operation &launch) {
  grid.launch = &launch;
  grid.device = context;
  grid.result = CUDA_SUCCESS;
  grid.begin = grid.end = 0;
  auto shuffled = [](int32_t size) {
    std::vector<int32_t> order(static_cast<size_t>(size));
    for (int32_t i = 0; i < size; ++i)
      order[size_t(i)] = i;
    std::shuffle(order.begin(), order.end(), getState().random);
    return order;
  };
  for (int32_t block : shuffled(launch.blocks)) {
    grid.block = block;
    runBlock(shuffled(launch.threads));
    if (grid.result != CUDA_SUCCESS)
      break;
  }
  return grid.result;
}
