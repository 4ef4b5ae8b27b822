//===- Ring.h - windows of a store that pass through memory -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A few windows of memory, of which one is worked on while those before it are
// written and those behind it are read, by threads that do nothing else. With
// four windows, when window 5 is worked on:
//
//   slot 0: 4, being written; then 8 is read into it
//   slot 1: 5, worked on
//   slot 2: 6, read
//   slot 3: 7, being read
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_STORE_RING_H
#define STEPC_STORE_RING_H

#include "store/Store.h"

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <thread>
#include <vector>

namespace stepc::store {

/// Bytes of the file, and where they are in a window.
struct Span {
  int64_t offset;
  int64_t bytes;
  int64_t at;
  /// Whether they are written back; and whether they are read before.
  bool changes;
  bool reads = true;
};

/// Pages of the system's own, which a forked process does not get: it would
/// have this one go on with copies of them, and transfers that pass the
/// system's cache, or a device that has them mapped, with the old ones.
class PageMap {
public:
  explicit PageMap(int64_t bytes);
  ~PageMap();
  PageMap(const PageMap &) = delete;
  PageMap &operator=(const PageMap &) = delete;

  char *get() const { return begin; }

private:
  char *begin;
  int64_t bytes;
};

/// Called by one thread.
class Ring {
public:
  Ring(std::shared_ptr<Store> store, int64_t slotBytes);
  ~Ring();
  Ring(const Ring &) = delete;
  Ring &operator=(const Ring &) = delete;

  int getNumSlots() const { return int(slots.size()); }
  int64_t getSlotBytes() const { return slotBytes; }
  int64_t getBytes() const { return slotBytes * int64_t(slots.size()); }
  char *getData(int slot) const { return memory.get() + slot * slotBytes; }

  /// Has the spans read into a slot, when what is written of it has been.
  void read(int slot, const std::vector<Span> &spans);
  /// Waits for them. Throws what any thread has thrown.
  void awaitRead(int slot);
  /// Has those that change written.
  void write(int slot, const std::vector<Span> &spans);
  /// Waits for all. Throws as well.
  void settle();
  /// Waits for what is under way, and forgets the rest and what was thrown.
  void abandon() noexcept;

private:
  struct Request {
    int slot;
    bool isWrite;
    int64_t offset;
    int64_t bytes;
    int64_t at;
  };
  struct Slot {
    int64_t numReads = 0;
    int64_t numWrites = 0;
    /// What is read when nothing is written any more.
    std::vector<Request> deferred;
  };

  void stop() noexcept;
  void serve() noexcept;
  void run(const Request &request);
  void finish(const Request &request);
  template <typename Take>
  void split(int slot, bool isWrite, const std::vector<Span> &spans,
             Take &&take);
  void ask(const Request &request) {
    requests[request.isWrite].push_back(request);
  }
  bool hasRequests() const {
    return !requests[0].empty() || !requests[1].empty();
  }
  Request take();
  bool isIdle() const;

  std::shared_ptr<Store> store;
  int64_t slotBytes;
  std::vector<Slot> slots;
  PageMap memory;
  std::vector<std::thread> threads;

  std::mutex mutex;
  /// That there are requests; and that some are done.
  std::condition_variable asked;
  std::condition_variable done;
  /// Reads, and writes.
  std::array<std::deque<Request>, 2> requests;
  /// Of which what came last was taken.
  bool writes = false;
  int64_t underWay = 0;
  std::exception_ptr failure;
  bool ends = false;
};

} // namespace stepc::store

#endif // STEPC_STORE_RING_H
