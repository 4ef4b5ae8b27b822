//===- Store.cpp - memory on disk ---------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "store/Store.h"

#include "core/Status.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

using namespace stepc;
using namespace stepc::store;

Store::Store(std::unique_ptr<File> ownFile, const StoreConfig &config,
             bool durable)
    : file(std::move(ownFile)), config(config), process(getpid()) {
  if (durable)
    slots = std::make_unique<Slots>(*file);
  void *reserved = mmap(nullptr, size_t(kReserved), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED)
    fail(STEPC_OUT_OF_MEMORY,
         "the system has no %lld bytes of addresses for a store",
         static_cast<long long>(kReserved));
  base = reinterpret_cast<uintptr_t>(reserved);
  if (!slots)
    return;
  for (auto [offset, size] : slots->getCommitted()) {
    if (offset > fileBytes)
      gaps.emplace(fileBytes, offset - fileBytes);
    taken.emplace(offset, size);
    takenBytes += size;
    fileBytes = offset + size;
  }
}

Store::~Store() { munmap(reinterpret_cast<void *>(base), size_t(kReserved)); }

bool Store::isForeign() const { return getpid() != process; }

void Store::requireOwn() const {
  if (isForeign())
    fail(STEPC_STORE_ERROR,
         "%s belongs to process %lld, of which this one was forked",
         file->getName().c_str(), static_cast<long long>(process));
}

[[noreturn]] static void failRoom(const File &file, int64_t bytes) {
  int error = errno;
  fail(STEPC_STORE_ERROR, "%s: no room for %lld bytes more: %s",
       file.getName().c_str(), static_cast<long long>(bytes),
       describeError(error).c_str());
}

/// A gap of this size, else new bytes at the end.
int64_t Store::find(int64_t bytes) {
  auto gap = std::find_if(gaps.begin(), gaps.end(),
                          [&](const auto &own) { return own.second >= bytes; });
  if (gap == gaps.end()) {
    if (bytes > kReserved - fileBytes)
      fail(STEPC_OUT_OF_MEMORY, "a store has room for %lld bytes",
           static_cast<long long>(kReserved));
    const int64_t place = getPlace(fileBytes), room = getRoom(bytes);
    if (slots) {
      slots->requireBytes(place);
      slots->dropBefore();
    }
    // A process that has ended may have left something behind what it
    // committed.
    if (file->extend(place, room) != 0 ||
        (slots && file->clear(place, room) != 0))
      failRoom(*file, room);
    fileBytes += bytes;
    return fileBytes - bytes;
  }
  auto [offset, room] = *gap;
  if (slots)
    slots->dropBefore();
  if (file->clear(getPlace(offset), getRoom(bytes)) != 0)
    failRoom(*file, getRoom(bytes));
  gaps.erase(gap);
  if (room > bytes)
    gaps.emplace(offset + bytes, room - bytes);
  return offset;
}

uintptr_t Store::take(int64_t bytes, bool scratch) {
  if (bytes < 0 || bytes > kReserved)
    fail(STEPC_INVALID_ARGUMENT, "%lld bytes are none that a store can have",
         static_cast<long long>(bytes));
  requireOwn();
  std::lock_guard<std::mutex> lock(mutex);
  return getAddress(takePages(std::max(roundUpToPage(bytes), kPage), scratch));
}

int64_t Store::takePages(int64_t bytes, bool scratch) {
  int64_t offset = find(bytes);
  taken.emplace(offset, bytes);
  takenBytes += bytes;
  if (slots)
    slots->add(offset, bytes, scratch);
  return offset;
}

void Store::give(uintptr_t address) {
  if (isForeign())
    return;
  std::lock_guard<std::mutex> lock(mutex);
  auto own = taken.find(getOffset(address));
  if (!contains(address) || own == taken.end())
    fail(STEPC_INVALID_ARGUMENT, "address %p is none that was taken of %s",
         reinterpret_cast<void *>(address), file->getName().c_str());
  const auto [offset, size] = *own;
  takenBytes -= size;
  taken.erase(own);
  if (!slots || slots->remove(offset))
    release(offset, size);
}

/// What is nobody's any more.
void Store::release(int64_t offset, int64_t size) {
  file->discard(getPlace(offset), getRoom(size));
  auto after = gaps.lower_bound(offset);
  if (after != gaps.end() && after->first == offset + size) {
    size += after->second;
    after = gaps.erase(after);
  }
  if (after != gaps.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  gaps.emplace(offset, size);
}

void Store::requireTaken(uintptr_t address, int64_t bytes) const {
  std::lock_guard<std::mutex> lock(mutex);
  int64_t offset = getOffset(address);
  auto own = taken.upper_bound(offset);
  if (contains(address) && own != taken.begin()) {
    --own;
    if (bytes >= 0 && bytes <= own->first + own->second - offset)
      return;
  }
  fail(STEPC_INVALID_ARGUMENT, "%lld bytes at address %p are none of %s",
       static_cast<long long>(bytes), reinterpret_cast<void *>(address),
       file->getName().c_str());
}

const Slots &Store::getSlots() const {
  if (!slots)
    fail(STEPC_INVALID_ARGUMENT, "%s does not outlive its process",
         file->getName().c_str());
  return *slots;
}

Store::Committed Store::getCommitted() const {
  (void)getSlots();
  std::lock_guard<std::mutex> lock(mutex);
  return {slots->getGeneration(), &slots->getNote()};
}

void Store::commit(const void *note, int64_t bytes) {
  requireOwn();
  (void)getSlots();
  std::lock_guard<std::mutex> lock(mutex);
  const int64_t before = slots->getBytesWritten();
  if (int64_t missing = slots->getMissingRoom(bytes)) {
    int64_t old = slots->getRecord();
    slots->setRecord(takePages(missing));
    if (old != 0) {
      auto own = taken.find(old);
      const int64_t size = own->second;
      takenBytes -= size;
      taken.erase(own);
      if (slots->remove(old))
        release(old, size);
    }
  }
  for (const Slots::Freed &own : slots->commit(note, bytes))
    release(own.offset, own.bytes);
  bytesWritten += slots->getBytesWritten() - before;
}

void Store::retreat() {
  requireOwn();
  (void)getSlots();
  std::lock_guard<std::mutex> lock(mutex);
  slots->retreat();
}

void Store::readPages(void *to, int64_t bytes, int64_t offset) {
  if (slots)
    slots->read(to, bytes, offset);
  else
    readAll(*file, to, bytes, offset);
  bytesRead += bytes;
}

void Store::writePages(const void *from, int64_t bytes, int64_t offset) {
  if (slots)
    slots->write(from, bytes, offset);
  else
    writeAll(*file, from, bytes, offset);
  bytesWritten += bytes;
}

/// Calls move(pages, offset, size, skipped, done, count) piece by piece: of
/// `size` bytes from a page on, in memory for pages, the `count` behind the
/// first `skipped` are bytes `done` and following.
template <typename Move>
void Store::forPages(uintptr_t address, int64_t bytes, Move &&move) {
  requireTaken(address, bytes);
  constexpr int64_t kMost = 4 << 20;
  PageMemory pages =
      allocatePages(std::min(roundUpToPage(bytes) + kPage, kMost));
  for (int64_t done = 0; done < bytes;) {
    int64_t offset = getOffset(address) + done;
    int64_t skipped = offset % kPage;
    int64_t count = std::min(bytes - done, kMost - skipped);
    move(pages.get(), offset - skipped, roundUpToPage(skipped + count), skipped,
         done, count);
    done += count;
  }
}

void Store::read(uintptr_t address, int64_t bytes, void *to) {
  forPages(address, bytes,
           [&](char *pages, int64_t offset, int64_t size, int64_t skipped,
               int64_t done, int64_t count) {
             readPages(pages, size, offset);
             std::memcpy(static_cast<char *>(to) + done, pages + skipped,
                         size_t(count));
           });
}

/// Pages that are written in part are read before.
void Store::write(uintptr_t address, int64_t bytes, const void *from) {
  requireOwn();
  forPages(address, bytes,
           [&](char *pages, int64_t offset, int64_t size, int64_t skipped,
               int64_t done, int64_t count) {
             const int64_t last = size - kPage;
             if (skipped || (size == kPage && count != size))
               readPages(pages, kPage, offset);
             if (last > 0 && skipped + count != size)
               readPages(pages + last, kPage, offset + last);
             std::memcpy(pages + skipped,
                         static_cast<const char *>(from) + done, size_t(count));
             writePages(pages, size, offset);
           });
}

int64_t Store::getFileBytes() const {
  std::lock_guard<std::mutex> lock(mutex);
  return getPlace(fileBytes);
}

int64_t Store::getTakenBytes() const {
  std::lock_guard<std::mutex> lock(mutex);
  return takenBytes;
}
