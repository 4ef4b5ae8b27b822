//===- SlotsCutTest.cpp - files of states when the power is cut -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A cut at any moment leaves of what was not synced any sectors that the disk
// likes.
//
//===----------------------------------------------------------------------===//

#include "support/NotedDisk.h"

#include <random>

using namespace stepc;
using namespace stepc::store;

namespace {

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

} // namespace
