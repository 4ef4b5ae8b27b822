//===- TransferRoundTest.cpp - entries of definitions with rounds ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/EntryModel.h"

#include <cmath>
#include <map>

using namespace stepc_test;

namespace {

StepcPackage *getTransfers(nlohmann::json (*make)()) {
  static std::map<nlohmann::json (*)(), PackagePtr> packages;
  PackagePtr &package = packages[make];
  if (!package)
    package = loadManifest(addAllTransfers(make()));
  return package.get();
}

/// Rows and columns of matrices that ranks have parts of.
TEST(Transfer, rounds) {
  for (bool rows : {false, true})
    for (auto [whole, partial] :
         {std::pair(A, A), std::pair(A, uint64_t(0)), std::pair(A, A | B)}) {
      std::vector<EntrySpec> specs;
      for (std::vector<int64_t> shape :
           {std::vector<int64_t>{7, 10}, {70, 3}, {5, 5}, {130, 41}, {1, 3}}) {
        specs.push_back(makeEntry(shape, whole, partial));
        specs.back().rows = rows;
      }
      // No part: sums stay whole numbers.
      EntryWorld world(getTransfers(makeShareManifest), {2, 2}, specs, {}, 400,
                       900);
      world.bindAll();
      world.run({}, /*integers=*/true);
      for (EntryRank &rank : world.ranks)
        for (const char *name : {"norm2", "largest", "totals"}) {
          double own, all;
          ASSERT_OK(stepcPlanGetReport(rank.plan.get(), 0, name, &own));
          ASSERT_OK(stepcPlanGetReport(world.plan.get(), 0, name, &all));
          EXPECT_EQ(all, own) << name;
        }
    }
}

/// Norms of whole tensors, on their owners and on all.
TEST(Transfer, wholeTensors) {
  for (bool owned : {false, true}) {
    std::vector<EntrySpec> specs;
    for (std::vector<int64_t> shape :
         {std::vector<int64_t>{7, 10}, {3000}, {5}, {0}, {130, 41}}) {
      specs.push_back(makeEntry(shape, owned ? A : 0, A, 3.0));
      specs.back().owned = owned;
    }
    EntryWorld lamb(getTransfers(makeLambManifest), {3}, specs, {}, 400, 900);
    lamb.bindAll();
    lamb.run({"moment"});
    specs[1].shape = {30, 100};
    specs[2].shape = {5, 1};
    specs[3].shape = {0, 3};
    EntryWorld factor(getTransfers(makeFactorManifest), {3}, specs, {}, 400,
                      900);
    factor.bindAll();
    factor.run({"rows", "columns"});
  }
}

/// An overflow on one rank skips the step on all, and nothing is gathered.
TEST(Transfer, skipped) {
  for (auto [whole, partial] : {std::pair(A, A), std::pair(A, uint64_t(0))}) {
    std::vector<EntrySpec> specs;
    for (std::vector<int64_t> shape :
         {std::vector<int64_t>{7, 10}, {70}, {5, 5}, {1300}})
      specs.push_back(makeEntry(shape, whole, partial));
    EntryWorld world(getTransfers(makeShardedClipManifest), {2}, specs, {}, 100,
                     100);
    world.bindAll();
    for (uint32_t step = 1; step <= 4; ++step) {
      world.fillGrads(step, /*integers=*/true);
      bool skips = step % 2 == 0;
      for (EntryRank &rank : world.ranks)
        if (skips && (&rank == world.ranks.data() || !partial))
          rank.grads[3].set(1299, INFINITY);
      int64_t calls = world.getCounters(0).calls;
      if (step > 2)
        world.stepByEvents(step, 1);
      else
        world.step();
      StepcLastStep last = {};
      last.structSize = sizeof(last);
      for (EntryRank &rank : world.ranks) {
        ASSERT_OK(stepcPlanGetLastStep(rank.plan.get(), &last));
        EXPECT_EQ(skips, last.skipped);
      }
      // Four buckets and four units; of rounds one or two.
      int64_t crossed = world.getCounters(0).calls - calls;
      EXPECT_EQ(skips ? crossed < 8 : crossed >= 6, true) << crossed;
      if (!skips)
        continue;
      for (EntryRank &rank : world.ranks)
        for (size_t i = 0; i < specs.size(); ++i)
          EXPECT_EQ(world.params[i].bits(), rank.params[i].bits());
    }
    world.check({});
  }
}

} // namespace
