//===- Region.cpp - memory that the processes of a group share ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "shm/Region.h"

#include "core/Memory.h"
#include "core/Status.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <random>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace stepc;
using namespace stepc::shm;

/// All outboxes together have no more, unless chunks would be less than a page.
static constexpr int64_t kMostBytes = int64_t(16) << 20;
static constexpr int64_t kMostChunk = int64_t(256) << 10;
static constexpr int64_t kLeastChunk = 4096;
/// What the link of a process to such memory says.
static constexpr char kTarget[] = "/memfd:stepc ";
/// Of what is laid out here; another library may have another.
static constexpr int64_t kLayout = 1;

struct Region::Head {
  std::atomic<int64_t> layout;
  int64_t numRanks, chunkBytes;
  uint64_t token[2];
  int32_t process, file;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

/// Where each kind of thing begins.
static int64_t align(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
static constexpr int64_t kMembers = 4096;
static int64_t getTakenBegin(int64_t numRanks) {
  return kMembers + align(numRanks * int64_t(sizeof(Member)));
}
/// Each rank writes a row of its own.
static int64_t getTakenRow(int64_t numRanks) {
  return int64_t(roundUpToLine(size_t(numRanks * 8)));
}
static int64_t getSlotsBegin(int64_t numRanks) {
  return getTakenBegin(numRanks) + align(numRanks * getTakenRow(numRanks));
}
static int64_t getChunksBegin(int64_t numRanks) {
  return getSlotsBegin(numRanks) +
         align(numRanks * kNumSlots * int64_t(sizeof(Slot)));
}

[[noreturn]] static void failIO(StepcStatus status, const char *what) {
  fail(status, "memory for ranks of one host: %s: %s", what, strerror(errno));
}

Region Region::create(int64_t numRanks) {
  Region region(int(syscall(SYS_memfd_create, "stepc", 1u /*MFD_CLOEXEC*/)), 0);
  if (region.file < 0)
    failIO(STEPC_COMMUNICATION_ERROR, "memfd_create");
  region.numRanks = numRanks;
  region.chunkBytes = std::clamp(kMostBytes / (numRanks * kNumSlots) /
                                     kLeastChunk * kLeastChunk,
                                 kLeastChunk, kMostChunk);
  int64_t bytes =
      getChunksBegin(numRanks) + numRanks * kNumSlots * region.chunkBytes;
  // Room is taken now: what is missing later would end the process.
  if (int error = posix_fallocate(region.file, 0, bytes)) {
    errno = error;
    failIO(STEPC_OUT_OF_MEMORY, "posix_fallocate");
  }
  region.map(bytes);
  Head &head = region.getHead();
  std::random_device random;
  for (uint64_t &word : head.token)
    word = uint64_t(random()) << 32 | random();
  head.numRanks = numRanks;
  head.chunkBytes = region.chunkBytes;
  head.process = int32_t(getpid());
  head.file = region.file;
  head.layout.store(kLayout);
  region.join();
  return region;
}

std::string Region::getPlace() const {
  const Head &head = getHead();
  char words[128];
  std::snprintf(words, sizeof(words), "/proc/%d/fd/%d %016llx%016llx",
                head.process, head.file,
                static_cast<unsigned long long>(head.token[0]),
                static_cast<unsigned long long>(head.token[1]));
  return words;
}

Region Region::open(const std::string &place, int64_t rank) {
  std::string path = place.substr(0, place.find(' '));
  auto refuse = [&] {
    fail(STEPC_COMMUNICATION_ERROR,
         "memory for ranks of one host: '%s' is not that of the group, as "
         "where processes of another host are meant",
         path.c_str());
  };
  // What else lies there is not opened: that may do something.
  char target[64] = "";
  if (readlink(path.c_str(), target, sizeof(target) - 1) < 0)
    failIO(STEPC_COMMUNICATION_ERROR, path.c_str());
  if (std::strncmp(target, kTarget, sizeof(kTarget) - 1) != 0)
    refuse();
  Region region(::open(path.c_str(), O_RDWR | O_CLOEXEC), rank);
  if (region.file < 0)
    failIO(STEPC_COMMUNICATION_ERROR, path.c_str());
  off_t bytes = lseek(region.file, 0, SEEK_END);
  if (bytes < kMembers)
    refuse();
  region.map(bytes);
  const Head &head = region.getHead();
  int64_t found = head.numRanks;
  if (head.layout.load() != kLayout || region.getPlace() != place ||
      found < 1 || found > kMaxRanks ||
      bytes != getChunksBegin(found) + found * kNumSlots * head.chunkBytes)
    refuse();
  if (rank < 1 || rank >= found)
    fail(STEPC_INVALID_ARGUMENT, "rank %lld of %lld, expected 1 to %lld",
         static_cast<long long>(rank), static_cast<long long>(found),
         static_cast<long long>(found - 1));
  region.numRanks = found;
  region.chunkBytes = head.chunkBytes;
  region.join();
  return region;
}

void Region::map(int64_t bytes) {
  void *found =
      mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (found == MAP_FAILED)
    failIO(STEPC_OUT_OF_MEMORY, "mmap");
  base = static_cast<char *>(found);
  size = bytes;
}

/// Takes the rank's place.
void Region::join() {
  Member &own = getMember(rank);
  uint32_t state = kAbsent;
  if (!own.state.compare_exchange_strong(state, kComing))
    fail(STEPC_INVALID_ARGUMENT, "rank %lld of the group is there already",
         static_cast<long long>(rank));
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  if (fcntl(file, F_SETLK, &lock) != 0)
    failIO(STEPC_COMMUNICATION_ERROR, "F_SETLK");
  own.process.store(int32_t(getpid()));
  own.state.store(kPresent);
}

Region::Region(Region &&other) noexcept
    : file(other.file), rank(other.rank), base(other.base), size(other.size),
      numRanks(other.numRanks), chunkBytes(other.chunkBytes) {
  other.file = -1;
  other.base = nullptr;
}

Region::~Region() {
  if (base)
    munmap(base, size_t(size));
  if (file >= 0)
    close(file);
}

Member &Region::getMember(int64_t of) const {
  return reinterpret_cast<Member *>(base + kMembers)[of];
}

std::atomic<uint64_t> &Region::getTaken(int64_t of, int64_t reader) const {
  char *place =
      base + getTakenBegin(numRanks) + reader * getTakenRow(numRanks) + of * 8;
  return *reinterpret_cast<std::atomic<uint64_t> *>(place);
}

Slot &Region::getSlot(int64_t of, uint64_t chunk) const {
  auto *slots = reinterpret_cast<Slot *>(base + getSlotsBegin(numRanks));
  return slots[of * kNumSlots + int64_t(chunk % kNumSlots)];
}

char *Region::getBytes(int64_t of, uint64_t chunk) const {
  return base + getChunksBegin(numRanks) +
         (of * kNumSlots + int64_t(chunk % kNumSlots)) * chunkBytes;
}

bool Region::isAlive(int64_t of) const {
  const Member &member = getMember(of);
  if (uint32_t state = member.state.load();
      state == kAbsent || state == kComing)
    return true; // it may come yet
  // Its own locks are in nobody's way.
  if (member.process.load() == int32_t(getpid()))
    return true;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = of;
  lock.l_len = 1;
  return fcntl(file, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool Region::isOwn() const {
  return getMember(rank).process.load() == int32_t(getpid());
}

void Region::ring(int64_t whom) const {
  Member &member = getMember(whom);
  member.bell.fetch_add(1);
  if (member.asleep.load())
    syscall(SYS_futex, &member.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Region::sleep(uint32_t bell, int64_t microseconds) const {
  timespec length = {time_t(microseconds / 1000000),
                     long(microseconds % 1000000) * 1000};
  syscall(SYS_futex, &getMember(rank).bell, FUTEX_WAIT, bell, &length, nullptr,
          0);
}
