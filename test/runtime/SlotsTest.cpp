//===- SlotsTest.cpp - files of states that outlive their process ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/NotedDisk.h"

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

using namespace stepc;
using namespace stepc::store;

namespace {

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
