//===- NotedDisk.h - a disk that notes what it is told ----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of which any call may fail, with stores of steps on it whose content is
// known.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_RUNTIME_SUPPORT_NOTEDDISK_H
#define STEPC_TEST_RUNTIME_SUPPORT_NOTEDDISK_H

#include "core/Status.h"
#include "store/Store.h"

#include "gtest/gtest.h"

#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace stepc::store {

inline constexpr int64_t kSector = 512;

/// What a disk was told, in order.
struct Call {
  enum Kind : uint8_t { Write, Zeros, Sync } kind;
  int64_t offset = 0;
  std::vector<char> bytes;
};

struct Disk {
  std::vector<char> content;
  std::vector<Call> calls;
  /// The call that fails, counted over all that may.
  int64_t failing = -1;
  int64_t numCalls = 0;
};

class OnDisk final : public File {
public:
  explicit OnDisk(Disk &disk) : disk(disk) {}

  int64_t read(void *to, size_t bytes, int64_t offset) override {
    int64_t moved =
        std::min(int64_t(bytes), int64_t(disk.content.size()) - offset);
    if (moved > 0)
      std::memcpy(to, disk.content.data() + offset, size_t(moved));
    return std::max<int64_t>(moved, 0);
  }
  int64_t write(const void *from, size_t bytes, int64_t offset) override {
    const auto *own = static_cast<const char *>(from);
    if (fails()) {
      bytes = bytes / 2 / kSector * kSector; // some of it may be there
      put({Call::Write, offset, {own, own + bytes}});
      errno = EIO;
      return -1;
    }
    put({Call::Write, offset, {own, own + bytes}});
    return int64_t(bytes);
  }
  int extend(int64_t begin, int64_t bytes) override {
    if (fails())
      return errno = ENOSPC, -1;
    disk.content.resize(std::max(disk.content.size(), size_t(begin + bytes)));
    return 0;
  }
  void discard(int64_t begin, int64_t bytes) override {
    put({Call::Zeros, begin, std::vector<char>(size_t(bytes), '?')});
  }
  int clear(int64_t begin, int64_t bytes) override {
    if (fails())
      return errno = ENOSPC, -1;
    put({Call::Zeros, begin, std::vector<char>(size_t(bytes))});
    return 0;
  }
  int sync() override {
    if (fails())
      return errno = EIO, -1;
    disk.calls.push_back({Call::Sync, 0, {}});
    return 0;
  }
  void close() override {}
  int64_t getBytes() override { return int64_t(disk.content.size()); }
  std::string getName() const override { return "the disk"; }
  bool isDirect() const override { return true; }

private:
  bool fails() { return disk.numCalls++ == disk.failing; }
  void put(Call call) {
    std::copy(call.bytes.begin(), call.bytes.end(),
              disk.content.begin() + call.offset);
    disk.calls.push_back(std::move(call));
  }

  Disk &disk;
};

using Opened = std::unique_ptr<Store>;

inline Opened open(Disk &disk) {
  return std::make_unique<Store>(std::make_unique<OnDisk>(disk),
                                 StoreConfig{kPage, 2, 1}, true);
}

inline std::string getWords(const std::function<void()> &call) {
  try {
    call();
  } catch (const Error &error) {
    return error.what();
  }
  return "not refused";
}

/// What a store has: its note and what is in each piece.
struct Image {
  std::string note;
  std::map<int64_t, std::vector<char>> pieces;
  bool operator==(const Image &other) const {
    return note == other.note && pieces == other.pieces;
  }
};

/// Steps of pieces that come, go and change, whole or in part.
class Script {
public:
  explicit Script(Store &store) : store(store) {}

  void step(int number) {
    if (number == 0 || number == 3)
      take(number == 0 ? 5 * kPage : 2 * kPage);
    if (number == 0)
      take(100);
    if (number == 2)
      give();
    if (number == 4)
      take(4 * kPage);
    if (number != 1)
      write(image.pieces.rbegin()->first, 0, number);
    write(image.pieces.begin()->first, number == 3 ? 2 * kPage + 7 : 0, number);
    // The note of one step needs another piece.
    image.note = std::string(number == 3 ? 20000 : 40, char('a' + number));
  }
  void commit() { store.commit(image.note.data(), int64_t(image.note.size())); }

  Image image;

private:
  void take(int64_t bytes) {
    uintptr_t address = store.take(bytes);
    image.pieces[store.getOffset(address)] = std::vector<char>(size_t(bytes));
  }
  void give() {
    store.give(store.getAddress(image.pieces.rbegin()->first));
    image.pieces.erase(image.pieces.rbegin()->first);
  }
  void write(int64_t offset, int64_t first, int number) {
    std::vector<char> &own = image.pieces[offset];
    std::fill(own.begin() + first, own.end(), char(number + 1));
    store.write(store.getAddress(offset) + uintptr_t(first),
                int64_t(own.size()) - first, own.data() + first);
  }

  Store &store;
};

inline constexpr int kSteps = 6;

/// By generation what the file has, over the pieces of that.
inline Image getImage(Store &store,
                      const std::map<int64_t, std::vector<char>> &as) {
  Image found;
  found.note = store.getSlots().getNote();
  for (const auto &[offset, bytes] : as) {
    std::vector<char> own(bytes.size());
    store.read(store.getAddress(offset), int64_t(own.size()), own.data());
    found.pieces[offset] = own;
  }
  return found;
}

inline bool has(Disk disk, const Image &image, int64_t generation) {
  disk.failing = -1;
  Opened store = open(disk);
  EXPECT_EQ(generation, store->getSlots().getGeneration());
  return store->getSlots().getGeneration() == generation &&
         getImage(*store, image.pieces) == image;
}

} // namespace stepc::store

#endif // STEPC_TEST_RUNTIME_SUPPORT_NOTEDDISK_H
