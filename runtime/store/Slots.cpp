//===- Slots.cpp - a file of states that outlives its process -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "store/Slots.h"

#include "core/Fault.h"
#include "core/Sha256.h"
#include "core/Status.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

using namespace stepc;
using namespace stepc::store;

namespace {

constexpr int64_t kHeadBytes = 3 * kPage;
constexpr int64_t kDigest = 64; // hex digits
constexpr char kHeadMagic[8] = {'S', 'T', 'E', 'P', 'C', 'D', 'U', 'R'};
constexpr char kRootMagic[8] = {'S', 'T', 'E', 'P', 'C', 'R', 'T', '1'};
/// In place of a root whose slots are being written. Were it zeros, a file that
/// a disk has lost the other root of would pass for a new one.
constexpr char kDroppedMagic[8] = {'S', 'T', 'E', 'P', 'C', 'R', 'T', '-'};
constexpr uint32_t kFormat = 1;

struct Head {
  char magic[8];
  uint32_t format;
  uint32_t pageBytes;
  char digest[kDigest]; // of what is before it
};

/// Of less than a sector, which disks write whole.
struct Root {
  char magic[8];
  int64_t generation;
  int64_t place;
  int64_t bytes;
  char record[kDigest];
  char digest[kDigest]; // of what is before it
};
static_assert(sizeof(Root) <= 512);

struct RecordedPiece {
  int64_t offset;
  int64_t bytes;
  int32_t slot;
  int32_t isRecord;
};

template <typename T>
void seal(T &block) {
  std::string digest = sha256Hex(&block, offsetof(T, digest));
  std::memcpy(block.digest, digest.data(), size_t(kDigest));
}

template <typename T>
bool isSealed(const T &block) {
  std::string digest = sha256Hex(&block, offsetof(T, digest));
  return std::memcmp(block.digest, digest.data(), size_t(kDigest)) == 0;
}

bool isZero(const char *bytes, int64_t count) {
  return std::all_of(bytes, bytes + count, [](char c) { return c == 0; });
}

} // namespace

Slots::Slots(File &file) : file(file) {
  const int64_t size = file.getBytes();
  if (size < 0)
    fail(STEPC_STORE_ERROR, "%s has no size: %s", file.getName().c_str(),
         describeError(errno).c_str());
  if (size < kHeadBytes && size % kPage != 0)
    failForeign();
  PageMemory head = allocatePages(kHeadBytes);
  std::memset(head.get(), 0, size_t(kHeadBytes));
  // What a process that ended when it made the file may have left.
  if (int64_t pages = std::min(size, kHeadBytes) / kPage * kPage)
    readAll(file, head.get(), pages, 0);
  readHead(head.get(), size);
}

void Slots::failDamaged(const char *what) const {
  fail(STEPC_STORE_ERROR, "%s: its %s is damaged", file.getName().c_str(),
       what);
}

void Slots::failForeign() const {
  fail(STEPC_STORE_ERROR, "%s is no file of states", file.getName().c_str());
}

void Slots::readHead(const char *pages, int64_t size) {
  if (isZero(pages, kHeadBytes) && size <= kHeadBytes)
    return makeHead();
  Head head;
  std::memcpy(&head, pages, sizeof(head));
  if (std::memcmp(head.magic, kHeadMagic, sizeof(kHeadMagic)) != 0)
    failForeign();
  if (head.format != kFormat || head.pageBytes != uint32_t(kPage))
    fail(STEPC_STORE_ERROR, "%s has format %u, this library reads %u",
         file.getName().c_str(), head.format, kFormat);
  if (!isSealed(head))
    failDamaged("head");
  readRoots(pages + kPage);
  // Both roots, as one may be gone in the system's cache alone. A sync would
  // not be enough behind one that failed: what it had is taken for written.
  writeAll(file, pages, kHeadBytes, 0);
  syncAll(file);
}

void Slots::makeHead() {
  PageMemory page = allocatePages(kPage);
  std::memset(page.get(), 0, size_t(kPage));
  Head head = {};
  std::memcpy(head.magic, kHeadMagic, sizeof(kHeadMagic));
  head.format = kFormat;
  head.pageBytes = uint32_t(kPage);
  seal(head);
  std::memcpy(page.get(), &head, sizeof(head));
  if (file.extend(0, kHeadBytes) != 0)
    fail(STEPC_STORE_ERROR, "%s: no room for its head: %s",
         file.getName().c_str(), describeError(errno).c_str());
  writeAll(file, page.get(), kPage, 0);
  syncAll(file);
}

void Slots::readRoots(const char *roots) {
  const Root *found = nullptr;
  Root both[2];
  for (int i = 0; i < 2; ++i) {
    std::memcpy(&both[i], roots + i * kPage, sizeof(Root));
    if (std::memcmp(both[i].magic, kRootMagic, sizeof(kRootMagic)) == 0 &&
        isSealed(both[i]) && both[i].generation % 2 == i &&
        (!found || found->generation < both[i].generation))
      found = &both[i];
  }
  if (!found && isZero(roots, 2 * kPage))
    return; // nothing was committed
  if (!found || found->bytes < 0 || found->place < kHeadBytes)
    failDamaged("log");
  generation = found->generation;
  const Root &other = both[found == both];
  hasBefore = generation == 1 ||
              (std::memcmp(other.magic, kRootMagic, sizeof(kRootMagic)) == 0 &&
               isSealed(other) && other.generation == generation - 1);
  readRecord(found->place, found->bytes, found->record);
}

void Slots::readRecord(int64_t place, int64_t bytes, const char *digest) {
  const int64_t size = roundUpToPage(bytes);
  requireBytes(place + size);
  PageMemory pages = allocatePages(size);
  readAll(file, pages.get(), size, place);
  if (sha256Hex(pages.get(), size_t(bytes))
          .compare(0, kDigest, digest, kDigest) != 0)
    failDamaged("log");
  parseRecord(pages.get(), bytes);
}

void Slots::parseRecord(const char *bytes, int64_t size) {
  int64_t count;
  std::memcpy(&count, bytes, sizeof(count));
  int64_t at = int64_t(sizeof(count));
  int64_t end = 0;
  for (int64_t i = 0; i < count; ++i) {
    RecordedPiece own;
    std::memcpy(&own, bytes + at, sizeof(own));
    at += int64_t(sizeof(own));
    Piece piece = {};
    piece.bytes = own.bytes;
    piece.slot = own.slot;
    piece.committed = true;
    piece.written.resize(size_t(own.bytes / kPage));
    pieces.emplace(own.offset, std::move(piece));
    if (own.isRecord)
      record = own.offset;
    end = std::max(end, getPlace(own.offset + own.bytes));
  }
  note.assign(bytes + at, size_t(size - at));
  requireBytes(end);
}

void Slots::requireBytes(int64_t bytes) const {
  if (bytes > file.getBytes())
    fail(STEPC_STORE_ERROR, "%s has become shorter", file.getName().c_str());
}

std::map<int64_t, int64_t> Slots::getCommitted() const {
  std::map<int64_t, int64_t> found;
  for (const auto &[offset, piece] : pieces)
    if (piece.committed)
      found.emplace(offset, piece.bytes);
  return found;
}

void Slots::add(int64_t offset, int64_t bytes, bool scratch) {
  std::lock_guard<std::mutex> lock(mutex);
  Piece piece = {};
  piece.bytes = bytes;
  piece.scratch = scratch;
  piece.written.resize(size_t(bytes / kPage));
  pieces[offset] = std::move(piece);
}

bool Slots::remove(int64_t offset) {
  std::lock_guard<std::mutex> lock(mutex);
  Piece &piece = pieces.at(offset);
  piece.given = true;
  if (piece.committed)
    return false;
  pieces.erase(offset);
  return true;
}

int64_t Slots::getSlotPlace(int64_t offset, const Piece &piece,
                            bool other) const {
  const int64_t slot = other ? 1 - piece.slot : piece.slot;
  return getPlace(offset) + slot * piece.bytes;
}

/// As much, from a page on, as lies together.
Slots::Run Slots::findRun(int64_t offset, int64_t bytes, bool isWrite) const {
  std::lock_guard<std::mutex> lock(mutex);
  auto own = std::prev(pieces.upper_bound(offset));
  const Piece &piece = own->second;
  const int64_t skipped = offset - own->first;
  bytes = std::min(bytes, piece.bytes - skipped);
  if (piece.scratch)
    return {getSlotPlace(own->first, piece, false) + skipped, bytes};
  auto isThere = [&](int64_t at) {
    return bool(piece.written[size_t(at / kPage)]);
  };
  const bool other =
      isWrite ? !STEPC_FAULT("durable-in-place") : isThere(skipped);
  int64_t end = kPage;
  while (end < bytes && (isWrite || isThere(skipped + end) == other))
    end += kPage;
  return {getSlotPlace(own->first, piece, other) + skipped,
          std::min(end, bytes)};
}

void Slots::mark(int64_t offset, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  auto own = std::prev(pieces.upper_bound(offset));
  Piece &piece = own->second;
  if (piece.scratch)
    return;
  int64_t page = (offset - own->first) / kPage;
  for (const int64_t end = page + bytes / kPage; page < end; ++page) {
    piece.numWritten += !piece.written[size_t(page)];
    piece.written[size_t(page)] = true;
  }
}

void Slots::read(void *to, int64_t bytes, int64_t offset) {
  for (int64_t done = 0; done < bytes;) {
    Run run = findRun(offset + done, bytes - done, false);
    readAll(file, static_cast<char *>(to) + done, run.bytes, run.place);
    done += run.bytes;
  }
}

void Slots::write(const void *from, int64_t bytes, int64_t offset) {
  if (broken)
    fail(STEPC_STORE_ERROR,
         "%s: a commit has failed or was undone, and nothing is written any "
         "more",
         file.getName().c_str());
  dropBefore();
  for (int64_t done = 0; done < bytes;) {
    Run run = findRun(offset + done, bytes - done, true);
    writeAll(file, static_cast<const char *>(from) + done, run.bytes,
             run.place);
    mark(offset + done, run.bytes);
    done += run.bytes;
  }
}

static int64_t getRecordBytes(int64_t numPieces, int64_t noteBytes) {
  return int64_t(sizeof(int64_t)) + numPieces * int64_t(sizeof(RecordedPiece)) +
         noteBytes;
}

int64_t Slots::getMissingRoom(int64_t noteBytes) const {
  // With the piece that may be added.
  const int64_t bytes =
      roundUpToPage(getRecordBytes(int64_t(pieces.size()) + 1, noteBytes));
  return record && pieces.at(record).bytes >= bytes ? 0 : 2 * bytes;
}

/// Of what was written in part, the rest.
void Slots::complete() {
  constexpr int64_t kMost = 1 << 20;
  PageMemory pages(nullptr, std::free);
  for (auto &[offset, piece] : pieces) {
    if (piece.given || piece.numWritten == 0)
      continue;
    for (int64_t at = 0; piece.numWritten < piece.bytes / kPage;) {
      if (piece.written[size_t(at / kPage)]) {
        at += kPage;
        continue;
      }
      if (!pages)
        pages = allocatePages(kMost);
      int64_t bytes =
          findRun(offset + at, std::min(kMost, piece.bytes - at), false).bytes;
      read(pages.get(), bytes, offset + at);
      write(pages.get(), bytes, offset + at);
      bytesWritten += bytes;
      at += bytes;
    }
  }
}

std::string Slots::makeRecord(const void *own, int64_t bytes) const {
  std::string made(sizeof(int64_t), 0);
  int64_t count = 0;
  for (const auto &[offset, piece] : pieces) {
    if (piece.given || piece.scratch)
      continue;
    const bool isRecord = offset == record;
    const bool flips = piece.numWritten != 0 || isRecord;
    RecordedPiece words = {offset, piece.bytes,
                           flips ? 1 - piece.slot : piece.slot, isRecord};
    made.append(reinterpret_cast<const char *>(&words), sizeof(words));
    ++count;
  }
  std::memcpy(made.data(), &count, sizeof(count));
  return made.append(static_cast<const char *>(own), size_t(bytes));
}

void Slots::writeRoot(int64_t place, int64_t bytes, const std::string &digest) {
  PageMemory page = allocatePages(kPage);
  std::memset(page.get(), 0, size_t(kPage));
  Root root = {};
  std::memcpy(root.magic, kRootMagic, sizeof(kRootMagic));
  root.generation = generation + 1;
  root.place = place;
  root.bytes = bytes;
  std::memcpy(root.record, digest.data(), size_t(kDigest));
  seal(root);
  std::memcpy(page.get(), &root, sizeof(root));
  const int64_t at = STEPC_FAULT("durable-one-root")
                         ? kPage
                         : (1 + root.generation % 2) * kPage;
  writeAll(file, page.get(), kPage, at);
}

std::vector<Slots::Freed> Slots::commit(const void *own, int64_t bytes) {
  complete();
  const std::string made = makeRecord(own, bytes);
  const int64_t size = roundUpToPage(int64_t(made.size()));
  PageMemory pages = allocatePages(size);
  std::memset(pages.get(), 0, size_t(size));
  std::memcpy(pages.get(), made.data(), made.size());
  write(pages.get(), size, record);
  const int64_t place = getSlotPlace(record, pieces.at(record), true);
  std::string digest = sha256Hex(made.data(), made.size());
  note.reserve(size_t(bytes));
  try {
    // What fails here may be on the disk, or in part.
    syncAll(file);
    writeRoot(place, int64_t(made.size()), digest);
    syncAll(file);
  } catch (...) {
    broken = true;
    throw;
  }
  bytesWritten += size + kPage;
  note.assign(static_cast<const char *>(own), size_t(bytes));
  ++generation;
  hasBefore = true;
  return settle();
}

std::vector<Slots::Freed> Slots::settle() {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<Freed> freed;
  for (auto next = pieces.begin(); next != pieces.end();) {
    Piece &piece = next->second;
    if (piece.given) {
      freed.push_back({next->first, piece.bytes});
      next = pieces.erase(next);
      continue;
    }
    piece.committed = !piece.scratch;
    if (piece.numWritten) {
      piece.slot = 1 - piece.slot;
      piece.written.assign(piece.written.size(), false);
      piece.numWritten = 0;
    }
    ++next;
  }
  leaving.swap(freed);
  return freed;
}

/// Not waited for: the disk may have it later, or never where the power is cut.
void Slots::dropBefore() {
  std::lock_guard<std::mutex> lock(mutex);
  if (!hasBefore)
    return;
  PageMemory page = allocatePages(kPage);
  std::memset(page.get(), 0, size_t(kPage));
  std::memcpy(page.get(), kDroppedMagic, sizeof(kDroppedMagic));
  if (generation > 1) // before the first there is nothing
    writeAll(file, page.get(), kPage, (2 - generation % 2) * kPage);
  hasBefore = false;
}

void Slots::retreat() {
  if (broken || !hasBefore)
    fail(STEPC_STORE_ERROR, "%s has no step before the one that it has",
         file.getName().c_str());
  broken = true;
  PageMemory page = allocatePages(kPage);
  std::memset(page.get(), 0, size_t(kPage));
  writeAll(file, page.get(), kPage, (1 + generation % 2) * kPage);
  syncAll(file);
}
