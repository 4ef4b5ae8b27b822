//===- SlotsTest.cpp - files of states that outlive their process ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On a disk that notes all calls, and has any of them fail. A cut of its power
// at any moment leaves of what was not synced any sectors that it likes.
//
//===----------------------------------------------------------------------===//

#include "core/Status.h"
#include "store/Store.h"

#include "gtest/gtest.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

using namespace stepc;
using namespace stepc::store;

namespace {

constexpr int64_t kSector = 512;

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

Opened open(Disk &disk) {
  return std::make_unique<Store>(std::make_unique<OnDisk>(disk),
                                 StoreConfig{kPage, 2, 1}, true);
}

std::string getWords(const std::function<void()> &call) {
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

constexpr int kSteps = 6;

/// By generation what the file has, over the pieces of that.
Image getImage(Store &store, const std::map<int64_t, std::vector<char>> &as) {
  Image found;
  found.note = store.getSlots().getNote();
  for (const auto &[offset, bytes] : as) {
    std::vector<char> own(bytes.size());
    store.read(store.getAddress(offset), int64_t(own.size()), own.data());
    found.pieces[offset] = own;
  }
  return found;
}

bool has(Disk disk, const Image &image, int64_t generation) {
  disk.failing = -1;
  Opened store = open(disk);
  EXPECT_EQ(generation, store->getSlots().getGeneration());
  return store->getSlots().getGeneration() == generation &&
         getImage(*store, image.pieces) == image;
}

TEST(Slots, opensWithWhatWasCommitted) {
  Disk disk;
  std::vector<Image> images(1);
  for (int step = 0; step < kSteps; ++step) {
    // Each step by a process of its own.
    Opened store = open(disk);
    Script script(*store);
    script.image = images.back();
    script.step(step);
    EXPECT_EQ(script.image.pieces,
              getImage(*store, script.image.pieces).pieces);
    if (step > 0) {
      EXPECT_TRUE(has(disk, images.back(), step));
    }
    script.commit();
    EXPECT_TRUE(has(disk, script.image, step + 1));
    images.push_back(script.image);
  }
}

/// With calls [0, count), of which those behind the last sync are there or not,
/// sector by sector.
Disk cut(const Disk &whole, size_t count, std::mt19937 &random) {
  size_t synced = 0;
  for (size_t i = 0; i < count; ++i)
    if (whole.calls[i].kind == Call::Sync)
      synced = i;
  Disk disk;
  disk.content.resize(whole.content.size());
  const unsigned odds = random() % 4; // of 3
  for (size_t i = 0; i < count; ++i) {
    const Call &call = whole.calls[i];
    for (int64_t at = 0; at < int64_t(call.bytes.size()); at += kSector)
      if (i < synced || random() % 3 < odds)
        std::memcpy(disk.content.data() + call.offset + at,
                    call.bytes.data() + at,
                    size_t(std::min(kSector, int64_t(call.bytes.size()) - at)));
  }
  return disk;
}

TEST(Slots, aCutOfPowerLeavesTheStepBeforeOrBehind) {
  Disk disk;
  std::vector<Image> images(1);
  std::vector<size_t> begun(1), done(1);
  {
    Opened store = open(disk);
    Script script(*store);
    begun[0] = done[0] = disk.calls.size();
    for (int step = 0; step < kSteps; ++step) {
      script.step(step);
      begun.push_back(disk.calls.size());
      script.commit();
      images.push_back(script.image);
      done.push_back(disk.calls.size());
    }
  }
  std::mt19937 random(7);
  size_t numBehind = 0;
  for (size_t count = begun[0]; count <= disk.calls.size(); ++count) {
    size_t step = 0;
    while (step + 1 < done.size() && done[step + 1] <= count)
      ++step;
    for (int turn = 0; turn < 12; ++turn) {
      Disk left = cut(disk, count, random);
      Opened store = open(left);
      const auto found = size_t(store->getSlots().getGeneration());
      // What follows the root's sync gives room back: it is the step's.
      const bool mayBeBehind =
          step + 1 < begun.size() && count > begun[step + 1];
      ASSERT_TRUE(found == step || (mayBeBehind && found == step + 1))
          << found << " of " << step << " at call " << count;
      numBehind += found != step;
      ASSERT_TRUE(found == 0 ||
                  getImage(*store, images[found].pieces) == images[found])
          << found << " at call " << count;
    }
  }
  EXPECT_LT(10U, numBehind);
}

/// What a process that is killed behind `count` calls leaves to the next one:
/// all that it wrote, of which the disk may not have all.
Disk leave(const Disk &whole, size_t count) {
  Disk disk;
  disk.content.resize(whole.content.size());
  disk.calls.assign(whole.calls.begin(), whole.calls.begin() + int64_t(count));
  for (const Call &call : disk.calls)
    std::copy(call.bytes.begin(), call.bytes.end(),
              disk.content.begin() + call.offset);
  return disk;
}

/// A process opens what a killed one left, and steps; at any moment of that the
/// power is cut. How often the file had a step of before.
size_t goOnAndCut(Disk disk, const std::vector<Image> &images,
                  std::mt19937 &random) {
  const size_t killed = disk.calls.size();
  size_t found, numBefore = 0;
  Image next;
  {
    Opened store = open(disk);
    found = size_t(store->getSlots().getGeneration());
    Script script(*store);
    script.image = images[found];
    script.step(int(found));
    script.commit();
    next = script.image;
  }
  for (size_t count = killed; count <= disk.calls.size(); ++count)
    for (int turn = 0; turn < 4; ++turn) {
      Disk left = cut(disk, count, random);
      Opened store = open(left);
      const auto now = size_t(store->getSlots().getGeneration());
      const Image &want = now == found + 1 ? next : images[now];
      numBefore += now != found + 1;
      EXPECT_TRUE(now == 0 || getImage(*store, want.pieces) == want)
          << now << " of " << found << ", killed at " << killed << ", cut at "
          << count;
    }
  return numBefore;
}

TEST(Slots, aCutOfPowerBehindAProcessThatWasKilled) {
  std::mt19937 random(11);
  std::vector<Image> images(1);
  Disk disk;
  size_t numBefore = 0;
  for (int step = 0; step < 4; ++step) {
    size_t begun = disk.calls.size();
    {
      Opened store = open(disk);
      Script script(*store);
      script.image = images.back();
      script.step(step);
      begun = disk.calls.size();
      script.commit();
      images.push_back(script.image);
    }
    for (size_t count = begun; count <= disk.calls.size(); ++count)
      numBefore += goOnAndCut(leave(disk, count), images, random);
    // It may have been going back, too.
    Disk back = disk;
    begun = back.calls.size();
    open(back)->retreat();
    for (size_t count = begun; count <= back.calls.size(); ++count)
      numBefore += goOnAndCut(leave(back, count), images, random);
    if (testing::Test::HasFailure())
      return;
  }
  EXPECT_LT(100U, numBefore);
}

TEST(Slots, anyCallThatFailsLeavesTheStepBeforeOrBehind) {
  int64_t numCalls;
  {
    Disk disk;
    Opened store = open(disk);
    Script script(*store);
    for (int step = 0; step < kSteps; ++step) {
      script.step(step);
      script.commit();
    }
    numCalls = disk.numCalls;
  }
  ASSERT_LT(40, numCalls);
  int numBroken = 0, numAgain = 0;
  for (int64_t failing = 0; failing < numCalls; ++failing) {
    Disk disk;
    disk.failing = failing;
    std::vector<Image> images(1);
    Opened store;
    std::string words = getWords([&] { store = open(disk); });
    if (!store) {
      EXPECT_EQ(0, words.rfind("the disk", 0)) << words;
      open(disk); // what is left is a new file
      continue;
    }
    Script script(*store);
    bool failed = false, inCommit = false;
    for (int step = 0; step < kSteps && !failed; ++step) {
      words = getWords([&] {
        inCommit = false;
        script.step(step);
        inCommit = true;
        script.commit();
      });
      failed = words != "not refused";
      if (!failed)
        images.push_back(script.image);
    }
    ASSERT_TRUE(failed) << failing;
    const auto before = int64_t(images.size()) - 1;
    Disk copy = disk;
    copy.failing = -1;
    int64_t found = open(copy)->getSlots().getGeneration();
    if (found != 0 && found == before)
      EXPECT_TRUE(has(disk, images.back(), before)) << failing;
    else if (found != before)
      EXPECT_TRUE(inCommit && has(disk, script.image, before + 1)) << failing;
    if (!inCommit)
      continue;
    // It goes on, or refuses to.
    words = getWords([&] { script.commit(); });
    if (words == "not refused") {
      ++numAgain;
      EXPECT_TRUE(has(disk, script.image, before + 1)) << failing;
    } else {
      ++numBroken;
      EXPECT_EQ("the disk: a commit has failed or was undone, and nothing is "
                "written any more",
                words);
    }
  }
  EXPECT_LE(2 * kSteps, numBroken); // both syncs of each
  EXPECT_LT(0, numAgain);
}

TEST(Slots, filesThatAreNone) {
  Disk disk;
  {
    Opened store = open(disk);
    Script script(*store);
    script.step(0);
    script.commit();
    script.step(1);
    script.commit();
  }
  auto refuse = [&](const std::function<void(Disk &)> &change) {
    Disk other = disk;
    change(other);
    std::vector<char> before = other.content;
    other.calls.clear();
    std::string words = getWords([&] { open(other); });
    EXPECT_EQ(before, other.content);
    EXPECT_TRUE(other.calls.empty());
    return words;
  };
  EXPECT_EQ("the disk is no file of states",
            refuse([](Disk &own) { own.content[0] = 'x'; }));
  EXPECT_EQ("the disk is no file of states",
            refuse([](Disk &own) { own.content.assign(10000, 'x'); }));
  EXPECT_EQ("the disk is no file of states", refuse([](Disk &own) {
              std::memset(own.content.data(), 0, size_t(kPage));
            }));
  EXPECT_EQ("the disk has format 0, this library reads 1",
            refuse([](Disk &own) { own.content[8] = 0; }));
  EXPECT_EQ("the disk: its head is damaged",
            refuse([](Disk &own) { own.content[16] ^= 1; }));
  auto harmRoot = [](Disk &own, int page) {
    own.content[size_t(page * kPage + 9)] ^= 1;
  };
  EXPECT_EQ("the disk: its log is damaged", refuse([&](Disk &own) {
              harmRoot(own, 1);
              harmRoot(own, 2);
            }));
  EXPECT_EQ("the disk: its log is damaged", refuse([](Disk &own) {
              int64_t place; // of the record of generation 2
              std::memcpy(&place, own.content.data() + kPage + 16, 8);
              own.content[size_t(place + 3)] ^= 1;
            }));
  EXPECT_EQ("the disk has become shorter", refuse([](Disk &own) {
              own.content.resize(own.content.size() - size_t(kPage));
            }));
}

TEST(Slots, goesBackByOneStep) {
  Disk disk;
  EXPECT_EQ("the disk has no step before the one that it has",
            getWords([&] { open(disk)->retreat(); }));
  std::vector<Image> images(1);
  Opened store = open(disk);
  Script script(*store);
  for (int step = 0; step < kSteps; ++step) {
    script.step(step);
    script.commit();
    images.push_back(script.image);
    Disk other = disk;
    Opened own = open(other);
    own->retreat();
    EXPECT_EQ("the disk: a commit has failed or was undone, and nothing is "
              "written any more",
              getWords([&] { own->commit("", 0); }));
    EXPECT_TRUE(has(other, images[size_t(step)], step)) << step;
    if (step > 1) // the other slots have nothing of that
      EXPECT_EQ("the disk has no step before the one that it has",
                getWords([&] { open(other)->retreat(); }));
    // Nor have they where a process was killed that had begun a step.
    Disk begun = disk;
    {
      Opened next = open(begun);
      const int64_t offset = images.back().pieces.begin()->first;
      next->write(next->getAddress(offset), 1, "x");
    }
    if (step > 0)
      EXPECT_EQ("the disk has no step before the one that it has",
                getWords([&] { open(begun)->retreat(); }));
    EXPECT_TRUE(has(begun, images.back(), step + 1)) << step;
    if (step > 0) {
      // What a disk has lost is no new file.
      const auto page = begun.content.begin() + (1 + (step + 1) % 2) * kPage;
      std::fill(page, page + kPage, 0);
      EXPECT_EQ("the disk: its log is damaged", getWords([&] { open(begun); }));
    }
  }
}

TEST(Slots, aStoreThatIsNotDurableCommitsNothing) {
  Disk disk;
  disk.content.resize(size_t(kPage));
  Store store(std::make_unique<OnDisk>(disk), StoreConfig{kPage, 2, 1});
  EXPECT_EQ("the disk does not outlive its process",
            getWords([&] { store.commit("", 0); }));
}

TEST(Slots, aForkedProcessDoesNotKeepAFileThatIsClosed) {
  const std::string folder = testing::TempDir();
  const std::string name = "slots-forked-" + std::to_string(getpid());
  std::unique_ptr<File> file = openNamed(folder, name, false);
  int ends[2];
  ASSERT_EQ(0, pipe(ends));
  const pid_t child = fork();
  if (child == 0) {
    file.reset(); // which leaves the file to the other
    char byte = 0;
    (void)!write(ends[1], &byte, 1);
    pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(1, read(ends[0], &byte, 1));
  EXPECT_NE("not refused", getWords([&] { openNamed(folder, name, false); }));
  kill(child, SIGKILL);
  ASSERT_EQ(child, waitpid(child, nullptr, 0));
  const pid_t other = fork();
  if (other == 0) {
    pause();
    _exit(0);
  }
  file->close();
  EXPECT_EQ("not refused", getWords([&] { openNamed(folder, name, false); }));
  kill(other, SIGKILL);
  ASSERT_EQ(other, waitpid(other, nullptr, 0));
  close(ends[0]);
  close(ends[1]);
  unlink((folder + "/" + name).c_str());
}

TEST(Slots, aFileIsOneStores) {
  const std::string folder = testing::TempDir();
  const std::string name = "slots-test-" + std::to_string(getpid());
  const StoreConfig config = {kPage, 2, 1};
  int64_t offset;
  {
    Store store(openNamed(folder, name, true), config, true);
    EXPECT_EQ("the file of states '" + folder + "/" + name +
                  "' is open in another optimizer or process",
              getWords([&] { openNamed(folder, name, true); }));
    uintptr_t address = store.take(3);
    store.write(address, 3, "abc");
    store.commit("note", 4);
    offset = store.getOffset(address);
  }
  for (bool direct : {true, false}) {
    Store store(openNamed(folder, name, direct), config, true);
    char back[3];
    store.read(store.getAddress(offset), 3, back);
    EXPECT_EQ("abc", std::string(back, 3));
    EXPECT_EQ("note", store.getSlots().getNote());
  }
  unlink((folder + "/" + name).c_str());
  EXPECT_EQ("the file of states '/no/such/folder/a' cannot be opened: No such "
            "file or directory",
            getWords([] { openNamed("/no/such/folder", "a", true); }));
}

} // namespace
