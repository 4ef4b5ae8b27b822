//===- Store.h - memory on disk -----------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What lies in a store has addresses, like what lies in memory: those of a
// range of the process that nobody can read or write. So a tensor in a store is
// bound, compared and looked for as any other; only who works on it has to
// bring it into memory (store/Ring.h, cpu/PlacedRun.h), and who forgets ends
// with a fault at once. Byte 8192 of the file is what lies at `base + 8192`.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_STORE_STORE_H
#define STEPC_STORE_STORE_H

#include "store/File.h"
#include "store/Slots.h"

#include <atomic>
#include <map>
#include <mutex>
#include <sys/types.h>

namespace stepc::store {

struct StoreConfig {
  int64_t windowBytes;
  int32_t numWindows;
  int32_t numThreads;
};

class Store {
public:
  /// `durable`: what is committed of it stays, and is there where the file has
  /// it already (store/Slots.h).
  Store(std::unique_ptr<File> file, const StoreConfig &config,
        bool durable = false);
  ~Store();
  Store(const Store &) = delete;
  Store &operator=(const Store &) = delete;

  /// So many bytes, zeros, from a page on. `scratch`: of a durable store, what
  /// is not committed.
  uintptr_t take(int64_t bytes, bool scratch = false);
  void give(uintptr_t address);
  bool contains(uintptr_t address) const noexcept {
    return address - base < uintptr_t(kReserved);
  }
  uintptr_t getAddress(int64_t offset) const {
    return base + uintptr_t(offset);
  }
  int64_t getOffset(uintptr_t address) const { return int64_t(address - base); }

  /// Of what was taken at once, from any byte on.
  void read(uintptr_t address, int64_t bytes, void *to);
  void write(uintptr_t address, int64_t bytes, const void *from);

  /// Of a durable store: what is in it now becomes what the file has, with a
  /// note; and what was committed last.
  void commit(const void *note, int64_t bytes);
  struct Committed {
    int64_t generation;
    const std::string *note; // until the next commit
  };
  Committed getCommitted() const;
  const Slots &getSlots() const;
  void retreat();
  void requireTaken(uintptr_t address, int64_t bytes) const;

  /// Pages, from page to page, by who has memory for them.
  void readPages(void *to, int64_t bytes, int64_t offset);
  void writePages(const void *from, int64_t bytes, int64_t offset);

  /// Whether the process is one that was forked of the store's: it shares the
  /// file, whose states are not its own.
  bool isForeign() const;
  void requireOwn() const;

  const StoreConfig &getConfig() const { return config; }
  File &getFile() const { return *file; }
  int64_t getFileBytes() const;
  int64_t getTakenBytes() const;
  int64_t getBytesRead() const { return bytesRead; }
  int64_t getBytesWritten() const { return bytesWritten; }

private:
  /// Of addresses, of which the system gives more than there is memory.
  static constexpr int64_t kReserved = int64_t(1) << 40;

  int64_t find(int64_t bytes);
  int64_t takePages(int64_t bytes, bool scratch = false);
  void release(int64_t offset, int64_t bytes);
  int64_t getPlace(int64_t offset) const {
    return slots ? Slots::getPlace(offset) : offset;
  }
  int64_t getRoom(int64_t bytes) const { return slots ? 2 * bytes : bytes; }
  template <typename Move>
  void forPages(uintptr_t address, int64_t bytes, Move &&move);

  std::unique_ptr<File> file;
  StoreConfig config;
  std::unique_ptr<Slots> slots;
  pid_t process;
  uintptr_t base = 0;
  mutable std::mutex mutex;
  /// By offset; the first page is nobody's.
  std::map<int64_t, int64_t> taken;
  std::map<int64_t, int64_t> gaps;
  int64_t fileBytes = kPage;
  int64_t takenBytes = 0;
  std::atomic<int64_t> bytesRead{0};
  std::atomic<int64_t> bytesWritten{0};
};

} // namespace stepc::store

#endif // STEPC_STORE_STORE_H
