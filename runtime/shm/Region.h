//===- Region.h - memory that the processes of a group share --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What lies in the memory, and how one finds, wakes and watches the others. An
// outbox of kNumSlots slots belongs to each rank: its chunk n is in slot n mod
// kNumSlots until those that it is for have taken it.
//
// A process holds a lock on byte r of the memory's file as long as it is rank
// r. The kernel lets it go when the process ends, however that comes about, and
// children of it have none.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_SHM_REGION_H
#define STEPC_SHM_REGION_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace stepc::shm {

inline constexpr int64_t kNumSlots = 4;
inline constexpr int64_t kMaxRanks = 1024;
/// In place of a rank: for all others.
inline constexpr uint64_t kToAll = 0xffff;

enum MemberState : uint32_t { kAbsent = 0, kComing, kPresent, kLeft, kGaveUp };

/// A rank, as the others see it.
struct alignas(64) Member {
  std::atomic<uint32_t> state;
  std::atomic<int32_t> process;
  /// Rung by who has something for the rank, or has taken something from it. A
  /// futex, on which so many of its threads sleep as `asleep` says.
  std::atomic<uint32_t> bell;
  std::atomic<uint32_t> asleep;
  /// How many chunks it has put into its outbox.
  std::atomic<uint64_t> numPut;
  /// Of a rank that gave up: why.
  char words[472];
};

/// A slot of an outbox. `tag` says which chunk is there, and for whom: chunk *
/// 2^16 + the rank, or kToAll. The rest is there for those whom it names.
struct alignas(64) Slot {
  std::atomic<uint64_t> tag;
  /// The exchange of the group, from 0 on; its kind and count of elements, as
  /// all ranks must have them.
  int64_t exchange, kind;
  /// Of the bytes that the rank has for the other, `bytes` from `begin` on.
  int64_t total, begin, bytes;
};

class Region {
public:
  /// The memory of a new group, as its rank 0.
  static Region create(int64_t numRanks);
  /// That of a group that another process has made.
  static Region open(const std::string &place, int64_t rank);
  ~Region();
  Region(Region &&other) noexcept;
  Region &operator=(Region &&) = delete;

  int64_t getRank() const { return rank; }
  int64_t getNumRanks() const { return numRanks; }
  int64_t getChunkBytes() const { return chunkBytes; }
  /// The words by which `open` finds it.
  std::string getPlace() const;

  Member &getMember(int64_t of) const;
  /// How far `reader` is in the outbox of `of`: the chunks before are taken,
  /// those for it.
  std::atomic<uint64_t> &getTaken(int64_t of, int64_t reader) const;
  Slot &getSlot(int64_t of, uint64_t chunk) const;
  char *getBytes(int64_t of, uint64_t chunk) const;

  /// Whether the rank's process is there: not before it has come.
  bool isAlive(int64_t of) const;
  void ring(int64_t whom) const;
  /// Sleeps until somebody rings after `bell` was read, or for so long.
  void sleep(uint32_t bell, int64_t microseconds) const;
  /// Whether this is the process that made the object: not one forked from it.
  bool isOwn() const;

private:
  struct Head;
  Region(int file, int64_t rank) : file(file), rank(rank) {}
  void map(int64_t bytes);
  void join();
  Head &getHead() const { return *reinterpret_cast<Head *>(base); }

  int file;
  int64_t rank;
  char *base = nullptr;
  int64_t size = 0;
  int64_t numRanks = 0, chunkBytes = 0;
};

} // namespace stepc::shm

#endif // STEPC_SHM_REGION_H
