//===- Grid.cpp - launches, the threads of a block as fibers --------------===//
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

constexpr int32_t kLanes = 32;

enum class Wait { None, Warp, Block, Done };

struct Fiber {
  ucontext_t context;
  Wait wait = Wait::None;
  /// What the thread gives in its shuffles, one after the other in turns: it
  /// may be one ahead of lanes that have not read it yet.
  int32_t given[2] = {0, 0};
  int32_t turn = 0;
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
  grid.fibers[grid.thread].wait = Wait::Done;
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
  grid.fibers[grid.thread].wait = Wait::Block;
  leave();
}

/// As the PTX ISA defines shfl.sync, all lanes taking part.
int32_t shuffle(int32_t value, int32_t offset, int32_t maskAndClamp,
                int32_t kind) {
  Fiber &own = grid.fibers[grid.thread];
  int32_t turn = own.turn;
  own.given[turn] = value;
  own.turn = 1 - turn;
  own.wait = Wait::Warp;
  leave();
  int32_t lane = grid.thread % kLanes;
  int32_t clamp = maskAndClamp & 31, mask = (maskAndClamp >> 8) & 31;
  int32_t least = lane & mask, most = least | (clamp & ~mask & 31);
  int32_t other = kind == SHUFFLE_BFLY   ? lane ^ (offset & 31)
                  : kind == SHUFFLE_UP   ? lane - (offset & 31)
                  : kind == SHUFFLE_DOWN ? lane + (offset & 31)
                                         : least | (offset & 31 & ~mask);
  bool inside = kind == SHUFFLE_UP ? other >= most : other <= most;
  return grid.fibers[grid.thread - lane + (inside ? other : lane)].given[turn];
}

void runThread() {
  grid.launch->function->code(grid.launch->arguments.data());
  grid.fibers[grid.thread].wait = Wait::Done;
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
    fiber.wait = Wait::None;
    fiber.turn = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = grid.stacks + size_t(t) * kStackBytes;
    fiber.context.uc_stack.ss_size = kStackBytes;
    makecontext(&fiber.context, runThread, 0);
  }
}

/// Whether all of these threads that have not ended wait so, and some does.
bool allWait(size_t begin, size_t end, Wait wait) {
  bool some = false;
  for (size_t t = begin; t < end; ++t) {
    if (grid.fibers[t].wait == wait)
      some = true;
    else if (grid.fibers[t].wait != Wait::Done)
      return false;
  }
  return some;
}

void goOn(size_t begin, size_t end) {
  for (size_t t = begin; t < end; ++t)
    if (grid.fibers[t].wait != Wait::Done)
      grid.fibers[t].wait = Wait::None;
}

/// Lets those go on for which the others have come; false: there are none.
bool release() {
  size_t size = grid.fibers.size();
  if (allWait(0, size, Wait::Block)) {
    goOn(0, size);
    return true;
  }
  bool some = false;
  for (size_t warp = 0; warp < size; warp += kLanes) {
    size_t end = std::min(size, warp + kLanes);
    // All lanes take part in a shuffle: none may have ended.
    bool ended = false;
    for (size_t t = warp; t < end; ++t)
      ended |= grid.fibers[t].wait == Wait::Done;
    if (!ended && allWait(warp, end, Wait::Warp)) {
      goOn(warp, end);
      some = true;
    }
  }
  return some;
}

void runBlock(const std::vector<int32_t> &order) {
  startFibers(int32_t(order.size()));
  do {
    for (int32_t thread : order) {
      if (grid.fibers[thread].wait != Wait::None)
        continue;
      grid.thread = thread;
      swapcontext(&grid.scheduler, &grid.fibers[thread].context);
      if (grid.result != CUDA_SUCCESS)
        return;
    }
  } while (release());
  for (Fiber &fiber : grid.fibers)
    if (fiber.wait != Wait::Done) {
      grid.result = CUDA_ERROR_LAUNCH_FAILED;
      getState().fault = "kernel '" + grid.launch->function->name +
                         "': threads wait for each other for ever";
    }
}

} // namespace

void *const *cuda_double::getServices() {
  static void *const services[SERVICES] = {
      reinterpret_cast<void *>(getThread),
      reinterpret_cast<void *>(getBlock),
      reinterpret_cast<void *>(getBlocks),
      reinterpret_cast<void *>(announceAccess),
      reinterpret_cast<void *>(waitForBlock),
      reinterpret_cast<void *>(shuffle)};
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
