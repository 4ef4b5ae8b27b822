//===- Ring.cpp - windows of a store that pass through memory -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "store/Ring.h"

#include "core/Fault.h"
#include "core/Status.h"

#include <algorithm>
#include <new>
#include <sys/mman.h>
#include <system_error>

using namespace stepc;
using namespace stepc::store;

/// What one call of the system moves: its own time is nothing beside that of
/// the bytes, and some of them together keep a disk busy.
static constexpr int64_t kRequestBytes = 1 << 20;

/// With all of its pages: no step takes page faults.
PageMap::PageMap(int64_t bytes) : bytes(bytes) {
  void *mapped = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (mapped == MAP_FAILED)
    throw std::bad_alloc();
  (void)madvise(mapped, size_t(bytes), MADV_DONTFORK);
  begin = static_cast<char *>(mapped);
}

PageMap::~PageMap() { munmap(begin, size_t(bytes)); }

Ring::Ring(std::shared_ptr<Store> ownStore, int64_t bytes)
    : store(std::move(ownStore)), slotBytes(roundUpToPage(bytes)),
      slots(size_t(store->getConfig().numWindows)), memory(getBytes()) {
  try {
    for (int i = 0; i < store->getConfig().numThreads; ++i)
      threads.emplace_back([this] { serve(); });
  } catch (const std::system_error &) {
    stop();
    fail(STEPC_OUT_OF_MEMORY, "%d threads for a store cannot be started",
         int(store->getConfig().numThreads));
  } catch (...) {
    stop();
    throw;
  }
}

Ring::~Ring() {
  abandon();
  stop();
}

void Ring::stop() noexcept {
  {
    std::lock_guard<std::mutex> lock(mutex);
    ends = true;
  }
  asked.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

template <typename Take>
void Ring::split(int slot, bool isWrite, const std::vector<Span> &spans,
                 Take &&take) {
  Slot &own = slots[size_t(slot)];
  for (const Span &span : spans) {
    if (isWrite ? !span.changes : !span.reads)
      continue;
    for (int64_t first = 0; first < span.bytes; first += kRequestBytes) {
      take(Request{slot, isWrite, span.offset + first,
                   std::min(kRequestBytes, span.bytes - first),
                   span.at + first});
      ++(isWrite ? own.numWrites : own.numReads);
    }
  }
}

void Ring::read(int slot, const std::vector<Span> &spans) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    Slot &own = slots[size_t(slot)];
    split(slot, false, spans, [&](const Request &request) {
      if (own.numWrites && !STEPC_FAULT("store-read-before-written"))
        own.deferred.push_back(request);
      else
        ask(request);
    });
  }
  asked.notify_all();
}

void Ring::write(int slot, const std::vector<Span> &spans) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    split(slot, true, spans, [&](const Request &request) { ask(request); });
  }
  asked.notify_all();
}

void Ring::awaitRead(int slot) {
  std::unique_lock<std::mutex> lock(mutex);
  // Of what is not read before, those that were written last may be on their
  // way.
  const Slot &own = slots[size_t(slot)];
  done.wait(lock, [&] {
    return failure || (own.numReads == 0 && own.numWrites == 0);
  });
  if (failure)
    std::rethrow_exception(failure);
}

bool Ring::isIdle() const {
  return !hasRequests() && underWay == 0 &&
         std::all_of(slots.begin(), slots.end(),
                     [](const Slot &slot) { return slot.deferred.empty(); });
}

void Ring::settle() {
  std::unique_lock<std::mutex> lock(mutex);
  done.wait(lock, [&] { return failure || isIdle(); });
  if (failure)
    std::rethrow_exception(failure);
}

void Ring::abandon() noexcept {
  std::unique_lock<std::mutex> lock(mutex);
  for (std::deque<Request> &own : requests)
    own.clear();
  for (Slot &slot : slots)
    slot.deferred.clear();
  done.wait(lock, [&] { return underWay == 0; });
  for (Slot &slot : slots)
    slot.numReads = slot.numWrites = 0;
  failure = nullptr;
}

/// Reads as long as there are some, then writes: a disk takes longer for both
/// at once than for the one and then the other, several windows of each.
Ring::Request Ring::take() {
  if (requests[writes].empty())
    writes = !writes;
  Request request = requests[writes].front();
  requests[writes].pop_front();
  return request;
}

void Ring::serve() noexcept {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    asked.wait(lock, [&] { return ends || hasRequests(); });
    if (ends)
      return;
    const Request request = take();
    ++underWay;
    lock.unlock();
    std::exception_ptr thrown;
    try {
      run(request);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    --underWay;
    try {
      finish(request);
    } catch (...) {
      thrown = std::current_exception();
    }
    if (thrown && !failure)
      failure = thrown;
    if (failure)
      for (std::deque<Request> &own : requests)
        own.clear();
    done.notify_all();
  }
}

void Ring::run(const Request &request) {
  char *data = getData(request.slot) + request.at;
  if (request.isWrite)
    store->writePages(data, request.bytes, request.offset);
  else
    store->readPages(data, request.bytes, request.offset);
}

/// Has what waited for the last write of the slot read.
void Ring::finish(const Request &request) {
  Slot &own = slots[size_t(request.slot)];
  int64_t &left = request.isWrite ? own.numWrites : own.numReads;
  left = std::max<int64_t>(left - 1, 0);
  if (!request.isWrite || left > 0 || own.deferred.empty())
    return;
  for (const Request &deferred : own.deferred)
    ask(deferred);
  own.deferred.clear();
  asked.notify_all();
}
