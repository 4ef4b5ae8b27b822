//===- Group.h - exchanges of processes that share memory -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each rank puts what it sends into its outbox, chunk after chunk, the
// exchanges in the order in which it has started them, and takes from the
// others' outboxes what is for it, from each in that order. A rank that waits
// for one exchange goes on with all. So the first exchange that is not done
// never waits for a later one:
//
//   rank 0 waits for exchange 1, rank 1 for exchange 0: rank 0's outbox has
//   what is left of 0 before 1, rank 1 takes that, and puts what rank 0 waits
//   for.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_SHM_GROUP_H
#define STEPC_SHM_GROUP_H

#include "comm/Deadline.h"
#include "shm/Region.h"
#include "stepc/stepc.h"

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace stepc::shm {

/// Of an exchange, what one rank has for another or gets from it. `rank` is
/// kToAll of what all get.
struct Piece {
  uint64_t rank;
  char *address;
  int64_t bytes;
  /// So many have crossed; something has, be it that there are none.
  int64_t done = 0;
  bool begun = false;

  bool isWhole() const { return begun && done == bytes; }
};

struct Exchange {
  int64_t number;
  /// As all ranks must have it: the StepcTransferKind, and of one that is part
  /// of a reduction 2 * (1 + StepcReduction) more.
  int64_t kind;
  uint64_t axes;
  std::vector<Piece> out, in;
  /// Where among `out` it goes on, so that all get something at the same time.
  size_t turn = 0;

  bool isPut() const;
  bool isDone() const;
  /// "all_gather of 12 bytes over axes [0]"
  std::string describe() const;
};

/// "all_gather", "sum of f64 by all_gather"
std::string describeKind(int64_t kind);

class Group {
public:
  Group(Region region, const int64_t *names);
  ~Group();
  Group(const Group &) = delete;

  const Region &getRegion() const { return region; }
  void setDeadline(std::chrono::milliseconds value) { length = value; }

  // As in StepcCommunicator. They throw Error.
  void reduce(const StepcReduceCall *calls, int64_t numCalls);
  std::unique_ptr<Exchange> start(const StepcTransfer &transfer);
  void finish(std::unique_ptr<Exchange> exchange);

private:
  friend class Reduction;

  // Group.cpp: one exchange after the other.
  std::unique_ptr<Exchange> begin(const StepcTransfer &transfer, int64_t kind);
  using Lock = std::unique_lock<std::mutex>;
  /// With the lock held, except where nothing moves.
  void await(Exchange &exchange, const Deadline &deadline, Lock &lock);
  bool moveAll();
  void requireSound() const;
  void requireOthers(const Exchange &exchange);
  [[noreturn]] void failLate(const Exchange &exchange) const;
  std::vector<size_t> findMissing(const Exchange &exchange) const;
  void giveUp(const std::string &words);
  [[noreturn]] void refuse(const std::string &fault);
  std::string getName(uint64_t rank) const;
  /// Puts and takes what can be, and says whether anything was.
  bool move();

  // Push.cpp
  bool push();
  std::vector<size_t> findBlockers() const;
  void put(Exchange &exchange, Piece &piece);

  // Pull.cpp
  bool pull();
  bool pullFrom(uint64_t other);
  bool take(uint64_t other, uint64_t chunk);

  Region region;
  std::vector<int64_t> names;
  std::chrono::milliseconds length{60000};
  int64_t numStarted = 0;
  /// Those that are not finished, by number.
  std::map<int64_t, Exchange *> open;
  /// Of them those of which something is not put yet, in their order.
  std::deque<Exchange *> unput;
  uint64_t numPut = 0;
  /// How far this rank is in each outbox.
  std::vector<uint64_t> numTaken;
  std::string failure;
};

/// Whether this process has a rank of the group whose memory is there.
bool isMember(const std::string &place);

/// Held while any group of the process moves, and not while one waits.
std::mutex &getMutex();

} // namespace stepc::shm

#endif // STEPC_SHM_GROUP_H
