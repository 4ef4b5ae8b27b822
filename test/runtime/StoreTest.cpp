//===- StoreTest.cpp - memory on disk -------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With a file of the test's own, which is slow, short, or fails.
//
//===----------------------------------------------------------------------===//

#include "store/Store.h"
#include "core/Status.h"
#include "store/Ring.h"

#include "gtest/gtest.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

using namespace stepc;
using namespace stepc::store;

namespace {

/// Memory that behaves as a file does on its worse days.
class Double final : public File {
public:
  /// Of each call: what is done before it, and the bytes that it moves of those
  /// asked for, or -errno.
  using Say = std::function<int64_t(bool isWrite, size_t bytes, int64_t at)>;

  explicit Double(bool direct = true) : direct(direct) {}

  int64_t read(void *to, size_t bytes, int64_t offset) override {
    int64_t moved = ask(false, bytes, offset);
    std::lock_guard<std::mutex> lock(mutex);
    if (moved > 0)
      moved = std::max<int64_t>(
          0, std::min(moved, int64_t(content.size()) - offset));
    if (moved > 0)
      std::memcpy(to, content.data() + offset, size_t(moved));
    return moved;
  }
  int64_t write(const void *from, size_t bytes, int64_t offset) override {
    int64_t moved = ask(true, bytes, offset);
    std::lock_guard<std::mutex> lock(mutex);
    if (moved > 0)
      std::memcpy(content.data() + offset, from, size_t(moved));
    return moved;
  }
  int extend(int64_t begin, int64_t bytes) override {
    if (room >= 0 && begin + bytes > room) {
      errno = ENOSPC;
      return -1;
    }
    std::lock_guard<std::mutex> lock(mutex);
    content.resize(size_t(begin + bytes));
    return 0;
  }
  void discard(int64_t begin, int64_t bytes) override {
    std::lock_guard<std::mutex> lock(mutex);
    std::memset(content.data() + begin, '?', size_t(bytes));
  }
  int clear(int64_t begin, int64_t bytes) override {
    std::lock_guard<std::mutex> lock(mutex);
    std::memset(content.data() + begin, 0, size_t(bytes));
    return 0;
  }
  int sync() override { return 0; }
  void close() override {}
  int64_t getBytes() override { return int64_t(content.size()); }
  std::string getName() const override { return "the double"; }
  bool isDirect() const override { return direct; }

  Say say;
  int64_t room = -1;
  std::vector<char> content;

private:
  int64_t ask(bool isWrite, size_t bytes, int64_t offset) {
    // As the system has it of direct transfers.
    if (direct && (bytes % size_t(kPage) || offset % kPage)) {
      errno = EINVAL;
      return -1;
    }
    int64_t moved = say ? say(isWrite, bytes, offset) : int64_t(bytes);
    if (moved < 0) {
      errno = int(-moved);
      return -1;
    }
    return moved;
  }

  bool direct;
  std::mutex mutex;
};

struct Made {
  explicit Made(bool direct = true, int windows = 3, int threads = 3) {
    auto own = std::make_unique<Double>(direct);
    file = own.get();
    store = std::make_shared<Store>(std::move(own),
                                    StoreConfig{kPage, windows, threads});
  }

  Double *file;
  std::shared_ptr<Store> store;
};

std::string getRefusal(const std::function<void()> &call) {
  try {
    call();
  } catch (const Error &error) {
    return std::string(error.getStatus() == STEPC_STORE_ERROR ? "store: "
                                                              : "other: ") +
           error.what();
  }
  return "not refused";
}

TEST(Store, piecesAreZeroAndTakenAgain) {
  Made made;
  Store &store = *made.store;
  std::vector<uintptr_t> taken;
  for (int64_t bytes : {1, 4096, 4097, 20000})
    taken.push_back(store.take(bytes));
  EXPECT_EQ(4096 * (1 + 1 + 2 + 5), store.getTakenBytes());
  for (uintptr_t address : taken) {
    EXPECT_TRUE(store.contains(address));
    EXPECT_EQ(0U, address % 4096);
  }
  std::vector<char> some(20000, 'x'), back(20000);
  store.write(taken[3], 20000, some.data());
  store.read(taken[3], 20000, back.data());
  EXPECT_EQ(some, back);
  int64_t bytes = store.getFileBytes();
  store.give(taken[2]);
  store.give(taken[3]);
  store.give(taken[1]); // the three are one gap
  uintptr_t again = store.take(4096 * 8);
  EXPECT_EQ(taken[1], again);
  EXPECT_EQ(bytes, store.getFileBytes());
  store.read(again, 20000, back.data());
  EXPECT_EQ(std::vector<char>(20000), back);
  EXPECT_EQ("other: address " + std::string("0x"),
            getRefusal([&] { store.give(taken[3]); }).substr(0, 17));
}

TEST(Store, bytesFromAnywhere) {
  for (bool direct : {true, false}) {
    Made made(direct);
    // Odd numbers of bytes are moved, as by a disk of the network.
    int64_t calls = 0;
    made.file->say = [&](bool, size_t bytes, int64_t) -> int64_t {
      if (++calls % 3 == 0)
        return -EINTR;
      return bytes > 8192 ? int64_t(bytes) - (direct ? 3000 : 4097)
                          : int64_t(bytes);
    };
    uintptr_t address = made.store->take(9 << 20);
    std::string text(5 << 20, 0);
    for (size_t i = 0; i < text.size(); ++i)
      text[i] = char(i * 131 >> 3);
    made.store->write(address + 777, int64_t(text.size()), text.data());
    std::string back(text.size() + 2, 'x');
    made.store->read(address + 776, int64_t(back.size()), back.data());
    EXPECT_EQ(std::string(1, 0) + text + std::string(1, 0), back) << direct;
  }
}

TEST(Store, whatIsNotTaken) {
  Made made;
  uintptr_t address = made.store->take(4096);
  char byte;
  for (auto [at, bytes] : {std::pair<uintptr_t, int64_t>{address, 4097},
                           {address - 1, 1},
                           {address + 4096, 1},
                           {address, -1},
                           {0, 1}})
    EXPECT_NE(std::string::npos, getRefusal([&, at = at, bytes = bytes] {
                                   made.store->read(at, bytes, &byte);
                                 }).find("are none of the double"));
  EXPECT_EQ("other: -1 bytes are none that a store can have",
            getRefusal([&] { made.store->take(-1); }));
}

TEST(Store, noRoom) {
  Made made;
  made.file->room = 40960;
  made.store->take(30000);
  EXPECT_EQ("store: the double: no room for 8192 bytes more: No space left on "
            "device",
            getRefusal([&] { made.store->take(5000); }));
  made.store->take(1000);
  EXPECT_EQ(32768 + 4096, made.store->getTakenBytes());
}

TEST(Store, filesThatFail) {
  Made made;
  uintptr_t address = made.store->take(20000);
  std::vector<char> some(20000);
  made.file->say = [](bool, size_t bytes, int64_t at) -> int64_t {
    return at >= 8192 ? -EIO : std::min<int64_t>(int64_t(bytes), 8192 - at);
  };
  EXPECT_EQ("store: the double: 16384 bytes at 8192 cannot be read: "
            "Input/output error",
            getRefusal([&] { made.store->read(address, 20000, some.data()); }));
  made.file->say = [](bool isWrite, size_t bytes, int64_t) -> int64_t {
    return isWrite ? -ENOSPC : int64_t(bytes);
  };
  EXPECT_EQ(
      "store: the double: 20480 bytes at 4096 cannot be written: No "
      "space left on device",
      getRefusal([&] { made.store->write(address, 20000, some.data()); }));
  made.file->say = [](bool, size_t, int64_t) -> int64_t { return 0; };
  EXPECT_EQ("store: the double: 20480 bytes at 4096 cannot be read: the file "
            "has become shorter",
            getRefusal([&] { made.store->read(address, 20000, some.data()); }));
}

TEST(Store, aFolderThatIsNotThere) {
  EXPECT_EQ("store: no file for states can be made in '/no/such/folder': No "
            "such file or directory",
            getRefusal([] { openFile("/no/such/folder", true); }));
}

/// Passes windows through a ring, each of which adds 1 to its bytes.
void addOnes(Store &store, Ring &ring, uintptr_t address, int64_t numWindows,
             int64_t bytes) {
  auto getSpans = [&](int64_t window) {
    return std::vector<Span>{
        {store.getOffset(address) + window * bytes, bytes, 0, true}};
  };
  const int slots = ring.getNumSlots();
  for (int64_t i = 0; i < std::min<int64_t>(slots, numWindows); ++i)
    ring.read(int(i), getSpans(i));
  for (int64_t i = 0; i < numWindows; ++i) {
    const int slot = int(i % slots);
    ring.awaitRead(slot);
    for (int64_t k = 0; k < bytes; ++k)
      ++ring.getData(slot)[k];
    ring.write(slot, getSpans(i));
    if (i + slots < numWindows)
      ring.read(slot, getSpans(i + slots));
  }
  ring.settle();
}

TEST(Ring, windowsPassInOrder) {
  for (int threads : {1, 2, 8}) {
    Made made(true, 3, threads);
    // Writes are slow: what is read too early into their memory is seen.
    made.file->say = [](bool isWrite, size_t bytes, int64_t at) -> int64_t {
      if (isWrite && at / kPage % 3 == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return int64_t(bytes);
    };
    const int64_t bytes = 2 * kPage, windows = 20;
    uintptr_t address = made.store->take(bytes * windows);
    std::vector<char> all(size_t(bytes * windows));
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = char(i / size_t(bytes));
    made.store->write(address, int64_t(all.size()), all.data());
    Ring ring(made.store, bytes);
    for (int step = 0; step < 2; ++step)
      addOnes(*made.store, ring, address, windows, bytes);
    std::vector<char> back(all.size());
    made.store->read(address, int64_t(back.size()), back.data());
    for (char &byte : all)
      byte = char(byte + 2);
    EXPECT_EQ(all, back) << threads;
  }
}

TEST(Ring, failuresEndItAndItGoesOn) {
  for (bool ofWrites : {true, false}) {
    Made made;
    const int64_t bytes = 2 * kPage, windows = 9;
    uintptr_t address = made.store->take(bytes * windows);
    Ring ring(made.store, bytes);
    const int64_t bad = made.store->getOffset(address) + 4 * bytes;
    made.file->say = [=](bool isWrite, size_t size, int64_t at) -> int64_t {
      return isWrite == ofWrites && at == bad ? -EIO : int64_t(size);
    };
    std::string words = getRefusal(
        [&] { addOnes(*made.store, ring, address, windows, bytes); });
    EXPECT_EQ("store: the double: 8192 bytes at " + std::to_string(bad) +
                  " cannot be " + (ofWrites ? "written" : "read") +
                  ": Input/output error",
              words);
    ring.abandon();
    made.file->say = nullptr;
    addOnes(*made.store, ring, address, windows, bytes);
    char first;
    made.store->read(address + uintptr_t(8 * bytes), 1, &first);
    EXPECT_EQ(1, first);
  }
}

TEST(Ring, spansThatAreNewAreNotRead) {
  Made made(true, 2, 2);
  uintptr_t address = made.store->take(4 * kPage);
  const int64_t offset = made.store->getOffset(address);
  made.file->say = [](bool isWrite, size_t bytes, int64_t) -> int64_t {
    if (isWrite)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return int64_t(bytes);
  };
  Ring ring(made.store, kPage);
  for (char i = 0; i < 4; ++i) {
    const std::vector<Span> spans = {
        {offset + i * kPage, kPage, 0, true, false}};
    ring.read(0, spans);
    ring.awaitRead(0); // and for what was written from there
    std::memset(ring.getData(0), i + 1, size_t(kPage));
    ring.write(0, spans);
  }
  ring.settle();
  EXPECT_EQ(0, made.store->getBytesRead());
  for (int64_t i = 0; i < 4; ++i) {
    std::vector<char> page(size_t(kPage), char(i + 1)), back(page.size());
    made.store->read(address + uintptr_t(i * kPage), kPage, back.data());
    EXPECT_EQ(page, back) << i;
  }
}

TEST(Ring, spansThatStayAreNotWritten) {
  Made made;
  uintptr_t address = made.store->take(4 * kPage);
  const int64_t offset = made.store->getOffset(address);
  Ring ring(made.store, 4 * kPage);
  std::vector<Span> spans = {{offset, kPage, 0, false},
                             {offset + 2 * kPage, 2 * kPage, kPage, true}};
  ring.read(0, spans);
  ring.awaitRead(0);
  std::memset(ring.getData(0), 7, size_t(3 * kPage));
  ring.write(0, spans);
  ring.settle();
  EXPECT_EQ(3 * kPage, made.store->getBytesRead());
  EXPECT_EQ(2 * kPage, made.store->getBytesWritten());
  EXPECT_EQ(0, made.file->content[size_t(offset)]);
  EXPECT_EQ(7, made.file->content[size_t(offset + 2 * kPage)]);
}

} // namespace
