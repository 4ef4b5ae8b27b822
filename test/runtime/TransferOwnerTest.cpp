//===- TransferOwnerTest.cpp - who steps what is not cut ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/EntryModel.h"

using namespace stepc_test;

namespace {

TEST(Transfer, owned) {
  for (uint64_t partial : {uint64_t(0), A, A | B, B}) {
    std::vector<EntrySpec> specs = makeEntries(A, partial, partial ? 4.0 : 1.0);
    for (EntrySpec &spec : specs)
      spec.owned = true;
    EntryWorld world(getToyTransfers(), {3, 2}, specs, {}, 600, 900);
    world.bindAll();
    world.run({"second", "momentum_buffer"});
    // The largest are apart: 2730 elements, 1000, 192, ...
    std::vector<int64_t> owners;
    for (size_t i : {5, 10, 7})
      for (EntryRank &rank : world.ranks) {
        int64_t begin, end;
        ASSERT_OK(stepcPlanGetPart(rank.plan.get(), int64_t(i), &begin, &end));
        if (begin < end && rank.axes[1].coordinate == 0)
          owners.push_back(rank.axes[0].coordinate);
      }
    EXPECT_EQ((std::vector<int64_t>{0, 1, 2}), owners);
    DLTensor state;
    EXPECT_REFUSED(
        STEPC_WRONG_STATE,
        "tensor 5 is owned by another rank, which has its states",
        stepcPlanGetState(world.ranks[2].plan.get(), 5, "second", &state));
  }
}

/// Entries may say who owns what, and others go to who has least then. Callers
/// of an earlier version say nothing.
TEST(Transfer, ownersThatAreGiven) {
  std::vector<EntrySpec> specs = makeEntries(A, A, 3.0);
  for (EntrySpec &spec : specs) {
    spec.owned = true;
    spec.owner = 1 + int64_t(&spec - specs.data()) % 2;
  }
  specs[5].owner = 0;
  EntryWorld world(getToyTransfers(), {3}, specs, {}, 600, 900);
  world.bindAll();
  world.run({"second", "momentum_buffer"});
  for (size_t i = 0; i < specs.size(); ++i)
    for (EntryRank &rank : world.ranks) {
      int64_t begin, end, place = rank.axes[0].coordinate;
      ASSERT_OK(stepcPlanGetPart(rank.plan.get(), int64_t(i), &begin, &end));
      if (begin < end)
        EXPECT_EQ(i == 5 ? 2 : int64_t(i) % 2, place) << i;
    }
  EntryWorld old(getToyTransfers(), {3}, specs, {}, 600, 900);
  for (EntryRank &rank : old.ranks) {
    rank.givesStates = false; // nobody has asked for parts
    auto forget = [](StepcBinding &, StepcEntry &entry, StepcLayout &) {
      entry.structSize = offsetof(StepcEntry, owner);
    };
    ASSERT_OK(rank.bind(0, 1, forget));
    int64_t begin, end;
    ASSERT_OK(stepcPlanGetPart(rank.plan.get(), 0, &begin, &end));
    EXPECT_EQ(rank.axes[0].coordinate == 0, begin < end);
  }
}

} // namespace
