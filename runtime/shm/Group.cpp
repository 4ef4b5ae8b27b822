//===- Group.cpp - exchanges of processes that share memory ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "shm/Group.h"

#include "comm/CallCheck.h"
#include "comm/Describe.h"
#include "core/Status.h"
#include "shm/Reduction.h"

#include <algorithm>
#include <cstring>
#include <immintrin.h>
#include <pthread.h>

using namespace stepc;
using namespace stepc::shm;

/// Mostly what is waited for comes at once; so often it is looked for before
/// the rank sleeps.
static constexpr int kLooks = 64;
/// How long it sleeps before it looks whether the others are still there, and
/// where other groups of the process, at whose bells it does not sleep, have
/// exchanges under way.
static constexpr int64_t kWatch = 50000;
static constexpr int64_t kShort = 500;
/// Axes of the calls are not looked at, but named in messages.
static constexpr size_t kAnyAxes = 64;

static std::mutex mutex;

/// A process that is forked while another thread moves something gets the mutex
/// as it is when nobody does.
std::mutex &shm::getMutex() {
  static int handlers = pthread_atfork(
      [] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
  (void)handlers;
  return mutex;
}

/// The groups of the process.
static std::vector<Group *> &getGroups() {
  static std::vector<Group *> groups;
  return groups;
}

bool shm::isMember(const std::string &place) {
  std::lock_guard<std::mutex> lock(getMutex());
  return std::any_of(getGroups().begin(), getGroups().end(),
                     [&](const Group *group) {
                       return group->getRegion().getPlace() == place;
                     });
}

bool Exchange::isPut() const {
  return std::all_of(out.begin(), out.end(),
                     [](const Piece &piece) { return piece.isWhole(); });
}

bool Exchange::isDone() const {
  return isPut() && std::all_of(in.begin(), in.end(), [](const Piece &piece) {
           return piece.isWhole();
         });
}

std::string shm::describeKind(int64_t kind) {
  std::string name = getTransferName(int32_t(kind % 2));
  if (kind < 2)
    return name;
  return std::string(getReductionName(int32_t(kind / 2 - 1))) + " by " + name;
}

std::string Exchange::describe() const {
  int64_t bytes = 0;
  for (const Piece &piece : out)
    bytes += piece.bytes;
  std::string words =
      describeKind(kind) + " of " + std::to_string(bytes) + " bytes";
  return axes ? words + " over " + describeAxes(axes) : words;
}

Group::Group(Region given, const int64_t *givenNames)
    : region(std::move(given)), numTaken(size_t(region.getNumRanks()), 0) {
  for (int64_t rank = 0; rank < region.getNumRanks(); ++rank)
    names.push_back(givenNames ? givenNames[rank] : rank);
  std::lock_guard<std::mutex> lock(getMutex());
  getGroups().push_back(this);
}

Group::~Group() {
  std::lock_guard<std::mutex> lock(getMutex());
  auto &groups = getGroups();
  groups.erase(std::find(groups.begin(), groups.end(), this));
  if (!region.isOwn())
    return;
  uint32_t present = kPresent;
  region.getMember(region.getRank())
      .state.compare_exchange_strong(present, kLeft);
  for (int64_t other = 0; other < region.getNumRanks(); ++other)
    region.ring(other);
}

std::string Group::getName(uint64_t rank) const {
  return "rank " + std::to_string(names[size_t(rank)]);
}

void Group::requireSound() const {
  if (!failure.empty())
    throw Error(STEPC_COMMUNICATION_ERROR, failure);
  if (!region.isOwn())
    fail(STEPC_COMMUNICATION_ERROR,
         "the process was forked from that of %s and is no rank",
         getName(uint64_t(region.getRank())).c_str());
}

/// The others are told why; what is under way ends here.
void Group::giveUp(const std::string &words) {
  if (!failure.empty())
    return;
  failure = words;
  unput.clear();
  if (!region.isOwn())
    return;
  Member &own = region.getMember(region.getRank());
  std::strncpy(own.words, words.c_str(), sizeof(own.words) - 1);
  own.state.store(kGaveUp);
  for (int64_t other = 0; other < region.getNumRanks(); ++other)
    region.ring(other);
}

bool Group::move() {
  if (open.empty() || !failure.empty() || !region.isOwn())
    return false;
  try {
    bool pulled = pull();
    return push() || pulled;
  } catch (const std::exception &error) {
    giveUp(error.what());
    return true;
  }
}

/// A call that cannot be made: the others wait for it.
void Group::refuse(const std::string &fault) {
  std::string words = getName(uint64_t(region.getRank())) + ": " + fault;
  giveUp(words);
  throw Error(STEPC_COMMUNICATION_ERROR, words);
}

std::unique_ptr<Exchange> Group::begin(const StepcTransfer &transfer,
                                       int64_t kind) {
  requireSound();
  auto rank = size_t(region.getRank()), numRanks = names.size();
  std::string fault = findTransferFault(transfer, numRanks, kAnyAxes);
  if (!fault.empty())
    refuse(fault);
  auto made = std::make_unique<Exchange>();
  made->number = numStarted;
  made->kind = kind;
  made->axes = transfer.axes;
  bool toAll = transfer.kind == STEPC_ALL_GATHER;
  auto *from = static_cast<char *>(const_cast<void *>(transfer.send));
  auto *to = static_cast<char *>(transfer.receive);
  char *ownTo = nullptr, *ownFrom = from;
  for (size_t other = 0; other < numRanks; ++other) {
    if (other == rank) {
      ownTo = to;
      ownFrom = from;
    } else {
      made->in.push_back({other, to, transfer.receiveBytes[other]});
      if (!toAll)
        made->out.push_back({other, from, transfer.sendBytes[other]});
    }
    to += transfer.receiveBytes[other];
    from += toAll ? 0 : transfer.sendBytes[other];
  }
  int64_t bytes = transfer.receiveBytes[rank];
  if (bytes > 0 && ownTo != ownFrom)
    std::memmove(ownTo, ownFrom, size_t(bytes));
  if (toAll && numRanks > 1)
    made->out.push_back({kToAll, ownTo, bytes});
  ++numStarted;
  if (numRanks > 1) {
    unput.push_back(made.get());
    open[made->number] = made.get();
  }
  // Each begins with its neighbour, so that not all send to one.
  made->turn = made->out.empty() ? 0 : rank % made->out.size();
  move();
  return made;
}

std::unique_ptr<Exchange> Group::start(const StepcTransfer &transfer) {
  std::lock_guard<std::mutex> lock(getMutex());
  return begin(transfer, transfer.kind);
}

/// Moves every group of the process: another rank may wait for what this one
/// has in another group, and another thread sleep for what has come now.
bool Group::moveAll() {
  bool moved = false;
  for (Group *group : getGroups())
    if (group->move()) {
      group->region.ring(group->region.getRank());
      moved = true;
    }
  return moved;
}

void Group::await(Exchange &exchange, const Deadline &deadline, Lock &lock) {
  Member &own = region.getMember(region.getRank());
  for (int looks = 0; !exchange.isDone(); ++looks) {
    requireSound();
    if (moveAll()) {
      looks = 0;
      continue;
    }
    if (looks < kLooks) {
      _mm_pause();
      continue;
    }
    uint32_t bell = own.bell.load();
    ++own.asleep;
    if (moveAll()) {
      --own.asleep;
      continue;
    }
    requireOthers(exchange);
    if (deadline.isOver())
      failLate(exchange);
    bool others =
        std::any_of(getGroups().begin(), getGroups().end(), [&](Group *group) {
          return group != this && !group->open.empty();
        });
    lock.unlock();
    region.sleep(bell, others ? kShort : kWatch);
    lock.lock();
    --own.asleep;
  }
}

/// The ranks without whom the exchange does not end.
std::vector<size_t> Group::findMissing(const Exchange &exchange) const {
  std::vector<size_t> found;
  for (const Piece &piece : exchange.in)
    if (!piece.isWhole())
      found.push_back(size_t(piece.rank));
  return found.empty() ? findBlockers() : found;
}

/// That those it waits for are there. What they had put before they went is
/// taken first.
void Group::requireOthers(const Exchange &exchange) {
  for (size_t other : findMissing(exchange)) {
    const Member &member = region.getMember(int64_t(other));
    // In this order: one that leaves says so before its process ends.
    bool alive = region.isAlive(int64_t(other));
    uint32_t state = member.state.load();
    if (alive && state != kLeft && state != kGaveUp)
      continue;
    if (moveAll())
      return;
    std::string what = exchange.describe() + ": " + getName(other);
    if (state == kGaveUp)
      throw Error(STEPC_COMMUNICATION_ERROR,
                  what + " has given up: " + member.words);
    throw Error(STEPC_COMMUNICATION_ERROR,
                what + (state == kLeft ? " has left the group" : " has ended"));
  }
}

void Group::failLate(const Exchange &exchange) const {
  std::string missing;
  for (size_t other : findMissing(exchange))
    missing += (missing.empty() ? "" : ", ") + std::to_string(names[other]);
  throw Error(STEPC_COMMUNICATION_ERROR,
              exchange.describe() + " of " +
                  getName(uint64_t(region.getRank())) + " did not end within " +
                  std::to_string(length.count()) + " ms: it waits for rank " +
                  missing);
}

void Group::finish(std::unique_ptr<Exchange> exchange) {
  Lock lock(getMutex());
  try {
    await(*exchange, Deadline(length), lock);
  } catch (const std::exception &error) {
    open.erase(exchange->number);
    giveUp(error.what());
    throw;
  }
  open.erase(exchange->number);
}

void Group::reduce(const StepcReduceCall *calls, int64_t numCalls) {
  Lock lock(getMutex());
  requireSound();
  std::vector<Reduction> all;
  for (int64_t i = 0; i < numCalls; ++i) {
    std::string fault = findCallFault(calls[i], i, kAnyAxes);
    if (!fault.empty())
      refuse(fault);
    if (calls[i].count > 0 && names.size() > 1)
      all.emplace_back(calls[i], *this);
  }
  Deadline deadline(length);
  auto awaitAll = [&] {
    for (Reduction &each : all)
      if (each.exchange) {
        await(*each.exchange, deadline, lock);
        open.erase(each.exchange->number);
        each.exchange.reset();
      }
  };
  try {
    for (Reduction &each : all)
      each.begin();
    awaitAll();
    for (Reduction &each : all)
      each.beginSecond();
    awaitAll();
  } catch (const std::exception &error) {
    for (Reduction &each : all)
      if (each.exchange)
        open.erase(each.exchange->number);
    giveUp(error.what());
    throw;
  }
  for (Reduction &each : all)
    each.end();
}
