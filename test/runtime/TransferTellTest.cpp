//===- TransferTellTest.cpp - steps that find out which gradients there are
//===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/EntryModel.h"

#include <random>

using namespace stepc_test;

namespace {

std::vector<EntrySpec> makeMany(uint64_t whole, uint64_t partial,
                                double divisor) {
  std::vector<EntrySpec> specs;
  for (const std::vector<int64_t> &shape : std::vector<std::vector<int64_t>>{
           {7, 10}, {}, {3, 0}, {64, 3}, {5}, {39, 70}, {100}, {16}})
    specs.push_back(makeEntry(shape, whole, partial, divisor));
  specs[3].type = specs[5].type = Type::BF16;
  specs[6].type = Type::F64;
  return specs;
}

void findUnused(EntryWorld &world) {
  for (EntryRank &rank : world.ranks)
    ASSERT_OK(stepcPlanFindUnused(rank.plan.get(), 1));
}

/// Each rank has gradients of others, and some are nowhere; to the one process
/// a gradient that is not there is one of zeros.
void fillUnevenly(EntryWorld &world, uint32_t seed) {
  std::mt19937 random(seed);
  world.fillGrads(seed);
  std::vector<bool> nowhere(world.specs.size());
  for (size_t i = 0; i < nowhere.size(); ++i)
    nowhere[i] = random() % 4 == 0;
  world.setMissing(nowhere);
  for (size_t i = 0; i < nowhere.size(); ++i)
    for (size_t r = 0; !nowhere[i] && r < world.ranks.size(); ++r) {
      if (r == (seed + i) % world.ranks.size() || random() % 2)
        continue;
      Array &grad = world.ranks[r].grads[i];
      for (int64_t e = 0; e < grad.size(); ++e)
        grad.set(e, 0.0);
      ASSERT_OK(world.ranks[r].setGrad(i, false));
    }
}

void runUnevenly(EntryWorld &world) {
  world.bindAll();
  findUnused(world);
  for (uint32_t step = 1; step <= 6; ++step) {
    fillUnevenly(world, step);
    world.stepWhole();
    world.forEachRank([&](EntryRank &rank) {
      EXPECT_EQ(STEPC_OK, rank.stepByEvents(step, 1 + step % 3))
          << rank.message;
    });
    world.check({"second", "momentum_buffer"});
  }
}

TEST(TransferTell, flat) {
  for (int64_t underWay : {0, 1, 2}) {
    EntryWorld world(getToyTransfers(), {3}, makeMany(A, A, 3.0), {}, 600, 900,
                     1, underWay);
    runUnevenly(world);
  }
}

TEST(TransferTell, replicas) {
  EntryWorld world(getToyTransfers(), {2, 2}, makeMany(A, A | B, 4.0), {}, 600,
                   900);
  runUnevenly(world);
}

TEST(TransferTell, allReduce) {
  EntryWorld world(getToyTransfers(), {3}, makeMany(0, A, 3.0), {}, 600, 900);
  runUnevenly(world);
}

TEST(TransferTell, owned) {
  std::vector<EntrySpec> specs = makeMany(A, A, 3.0);
  for (EntrySpec &spec : specs)
    spec.owned = true;
  EntryWorld world(getToyTransfers(), {3}, specs, {}, 600, 900);
  runUnevenly(world);
}

/// Where a step is one for all tensors.
TEST(TransferTell, withoutParts) {
  PackagePtr package = loadToyWithoutParts();
  EntryWorld world(package.get(), {3}, makeMany(A, A, 3.0), {}, 600, 900);
  runUnevenly(world);
}

TEST(TransferTell, oneRank) {
  EntryWorld world(getToyTransfers(), {1}, makeMany(A, A, 1.0), {}, 600, 900);
  runUnevenly(world);
}

/// What all ranks have whole is there on all of them.
TEST(TransferTell, reduced) {
  PackagePtr package = loadToyWithoutParts();
  for (StepcPackage *made : {getToyTransfers(), package.get()}) {
    EntryWorld world(made, {2}, makeMany(A, 0, 1.0), {}, 600, 900);
    world.bindAll();
    findUnused(world);
    world.fillGrads(1);
    world.setMissing({false, false, true, false, true, false, false, false});
    world.stepWhole();
    world.forEachRank([](EntryRank &rank) {
      EXPECT_EQ(STEPC_OK, rank.stepByEvents(1, 2)) << rank.message;
    });
    world.check({"second", "momentum_buffer"});
    ASSERT_OK(world.ranks[1].setGrad(5, false));
    world.forEachRank([](EntryRank &rank) {
      EXPECT_EQ(STEPC_INVALID_ARGUMENT, rank.stepByEvents(2, 2));
      EXPECT_EQ("tensor 5 has a gradient on some ranks and none on others, all "
                "of which are to have the same",
                rank.message);
      EXPECT_EQ(STEPC_POISONED, rank.step());
    });
  }
}

/// Two buckets, of which rank 1 completes the first: that is stepped.
void giveUpTheSecond(EntryWorld &world, const std::string &words, bool parts) {
  world.bindAll();
  findUnused(world);
  world.fillGrads(1);
  world.setMissing({!parts, true});
  world.stepWhole();
  world.setMissing({false, false});
  world.forEachRank([&](EntryRank &rank) {
    StepcPlan *plan = rank.plan.get();
    ASSERT_OK(stepcStepBegin(plan));
    ASSERT_OK(stepcGradReady(plan, rank.ids.data(), 1));
    if (rank.getPlace(A) == 1) {
      ASSERT_OK(stepcStepAbandon(plan));
      return;
    }
    ASSERT_OK(stepcGradReady(plan, rank.ids.data() + 1, 1));
    EXPECT_REFUSED(STEPC_ABANDONED, words.c_str(), stepcStepEnd(plan));
  });
  world.check({"second", "momentum_buffer"});
  // The next one is as any other.
  fillUnevenly(world, 3);
  world.stepWhole();
  world.forEachRank([](EntryRank &rank) {
    EXPECT_EQ(STEPC_OK, rank.stepByEvents(3, 1)) << rank.message;
  });
  world.check({"second", "momentum_buffer"});
}

TEST(TransferTell, abandoned) {
  std::vector<EntrySpec> specs(2, makeEntry({64, 3}, A, A, 3.0));
  EntryWorld world(getToyTransfers(), {3}, specs, {}, 600, 900);
  giveUpTheSecond(world,
                  "the backward pass of rank 1 along 'a' ended before all its "
                  "gradients had come; 1 tensors were stepped with those of "
                  "all ranks, the others are as before",
                  true);
}

TEST(TransferTell, abandonedWithoutParts) {
  PackagePtr package = loadToyWithoutParts();
  std::vector<EntrySpec> specs(2, makeEntry({64, 3}, A, A, 3.0));
  EntryWorld world(package.get(), {3}, specs, {}, 600, 900);
  giveUpTheSecond(world,
                  "the backward pass of rank 1 along 'a' ended before all its "
                  "gradients had come; 0 tensors were stepped with those of "
                  "all ranks, the others are as before",
                  false);
}

/// What is read where it is has been stepped, and is not gathered.
TEST(TransferTell, abandonedReduced) {
  std::vector<EntrySpec> specs(2, makeEntry({64, 3}, A, 0));
  EntryWorld world(getToyTransfers(), {2}, specs, {}, 600, 600);
  world.bindAll();
  findUnused(world);
  world.forEachRank([](EntryRank &rank) {
    StepcPlan *plan = rank.plan.get();
    ASSERT_OK(stepcStepBegin(plan));
    if (rank.getPlace(A) == 1) {
      ASSERT_OK(stepcStepAbandon(plan));
    } else {
      ASSERT_OK(stepcGradReady(plan, rank.ids.data(), 2));
      EXPECT_EQ(STEPC_ABANDONED, stepcStepEnd(plan));
    }
    EXPECT_EQ(STEPC_POISONED, stepcStep(plan));
  });
}

/// A bucket waits for nothing that is said not to come.
TEST(TransferTell, absent) {
  std::vector<EntrySpec> specs(2, makeEntry({64, 3}, A, A, 2.0));
  EntryWorld world(getToyTransfers(), {2}, specs);
  world.bindAll();
  findUnused(world);
  world.fillGrads(1);
  world.setMissing({true, false});
  world.stepWhole();
  world.forEachRank([](EntryRank &rank) {
    StepcPlan *plan = rank.plan.get();
    ASSERT_OK(stepcStepBegin(plan));
    ASSERT_OK(stepcGradAbsent(plan, rank.ids.data(), 1));
    EXPECT_REFUSED(STEPC_WRONG_STATE,
                   "the gradient of tensor 0 was said not to come in this step",
                   stepcGradReady(plan, rank.ids.data(), 1));
    ASSERT_OK(stepcGradReady(plan, rank.ids.data() + 1, 1));
    // It has been stepped, and its gradient has gone.
    rank.grads[1].fill(7);
    ASSERT_OK(stepcStepEnd(plan));
  });
  world.check({"second", "momentum_buffer"});
  EXPECT_LT(0, world.getCounters(0).calls);
}

/// A rank that lacks all of a bucket sends zeros while others wait for it.
TEST(TransferTell, absentOnOneRank) {
  std::vector<EntrySpec> specs(3, makeEntry({64, 3}, A, A, 2.0));
  EntryWorld world(getToyTransfers(), {2}, specs, {}, /*gradientBytes=*/600);
  ASSERT_OK(stepcSimulatedWorldSetDeadline(world.world, 5000));
  world.bindAll();
  findUnused(world);
  for (uint32_t step = 1; step <= 3; ++step) {
    world.fillGrads(step);
    world.setMissing({false, false, false});
    // To the one process it is an addend of zeros.
    Array &lacking = world.ranks[0].grads[step % 3];
    for (int64_t e = 0; e < lacking.size(); ++e)
      lacking.set(e, 0.0);
    world.stepWhole();
    lacking.fill(7);
    world.forEachRank([&](EntryRank &rank) {
      StepcPlan *plan = rank.plan.get();
      ASSERT_OK(stepcStepBegin(plan));
      for (size_t i = 0; i < specs.size(); ++i) {
        bool absent = rank.getPlace(A) == 0 && i == step % 3;
        ASSERT_OK((absent ? stepcGradAbsent
                          : stepcGradReady)(plan, rank.ids.data() + i, 1));
        // All of its bucket has been said, and it has been stepped.
        rank.grads[i].fill(9);
      }
      ASSERT_OK(stepcStepEnd(plan));
    });
    world.check({"second", "momentum_buffer"});
  }
}

TEST(TransferTell, refused) {
  EntrySpec plain;
  plain.shape = {9};
  EntryWorld world(getToyTransfers(), {1}, {makeEntry({8, 6}, A, A), plain});
  world.bindAll();
  StepcPlan *plan = world.ranks[0].plan.get();
  int64_t ids[] = {0, 1, 0};
  EXPECT_REFUSED(STEPC_WRONG_STATE, "stepcStepAbandon without stepcStepBegin",
                 stepcStepAbandon(plan));
  ASSERT_OK(stepcStepBegin(plan));
  EXPECT_REFUSED(
      STEPC_WRONG_STATE,
      "stepcStepAbandon of a step that finds no unused tensors: other ranks "
      "are not told of it",
      stepcStepAbandon(plan));
  const char *outside =
      "stepcGradAbsent outside of a step that finds unused tensors";
  EXPECT_REFUSED(STEPC_WRONG_STATE, outside, stepcGradAbsent(plan, ids, 1));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcPlanFindUnused between stepcStepBegin and stepcStepEnd",
                 stepcPlanFindUnused(plan, 1));
  ASSERT_OK(stepcStepEnd(plan));
  ASSERT_OK(stepcPlanFindUnused(plan, 1));
  EXPECT_REFUSED(STEPC_WRONG_STATE, outside, stepcGradAbsent(plan, ids, 1));
  ASSERT_OK(stepcStepBegin(plan));
  EXPECT_REFUSED(STEPC_WRONG_STATE, "tensor 1 was bound without an entry",
                 stepcGradAbsent(plan, ids, 2));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "2 tensors were given, without ids",
                 stepcGradAbsent(plan, nullptr, 2));
  ASSERT_OK(stepcGradAbsent(plan, ids, 1));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "the gradient of tensor 0 has come since stepcStepBegin "
                 "already, or was said not to",
                 stepcGradAbsent(plan, ids, 1));
  ASSERT_OK(stepcStepEnd(plan));
}

/// One memory for the sums of all buckets, of which only one is there at a
/// time.
TEST(TransferTell, sharedSums) {
  std::vector<EntrySpec> specs(12, makeEntry({64, 3}, A, A, 3.0));
  int64_t bytes[2];
  for (bool shares : {false, true}) {
    for (int64_t underWay : {1, 2}) {
      EntryWorld world(getToyTransfers(), {3}, specs, {}, 600, 900, 1,
                       underWay);
      for (EntryRank &rank : world.ranks)
        if (shares)
          ASSERT_OK(stepcPlanShareSums(rank.plan.get()));
      runUnevenly(world);
      world.fillGrads(9);
      world.setMissing(std::vector<bool>(specs.size(), false));
      world.step();
      world.check({"second", "momentum_buffer"});
      StepcPlan *plan = world.ranks[0].plan.get();
      StepcPlanInfo info = {};
      info.structSize = sizeof(info);
      ASSERT_OK(stepcPlanGetInfo(plan, &info));
      bytes[shares] = info.bytesAllocated;
      if (!shares)
        continue;
      EXPECT_REFUSED(STEPC_WRONG_STATE,
                     "stepcPassBegin of a plan whose sums share their memory: "
                     "they are stepped as they land",
                     stepcPassBegin(plan));
      EXPECT_REFUSED(STEPC_WRONG_STATE,
                     "stepcPlanShareSums after 12 tensors were bound",
                     stepcPlanShareSums(plan));
    }
  }
  // Of eleven buckets, a third of 64 x 3 elements of f32 each.
  EXPECT_LE(11 * 256, bytes[0] - bytes[1]);
}

TEST(TransferTell, sharedSumsWithoutParts) {
  PackagePtr package = loadToyWithoutParts();
  EntryWorld world(package.get(), {3}, makeMany(A, A, 3.0), {}, 600, 900);
  for (EntryRank &rank : world.ranks)
    ASSERT_OK(stepcPlanShareSums(rank.plan.get()));
  runUnevenly(world);
}

/// The sum over ranks, as a pass has brought it.
TEST(TransferTell, gradient) {
  EntryWorld world(getToyTransfers(), {2},
                   {makeEntry({8, 6}, A, A, 2.0), makeEntry({8, 6}, A, 0)});
  world.bindAll();
  world.fillGrads(1, /*integers=*/true);
  world.forEachRank([&](EntryRank &rank) {
    StepcPlan *plan = rank.plan.get();
    DLTensor sum = {};
    EXPECT_REFUSED(STEPC_WRONG_STATE,
                   "no backward pass has brought gradients of tensor 0",
                   stepcPlanGetGrad(plan, 0, &sum));
    EXPECT_REFUSED(STEPC_WRONG_STATE,
                   "the gradient of tensor 1 is no sum over ranks",
                   stepcPlanGetGrad(plan, 1, &sum));
    ASSERT_OK(stepcPassBegin(plan));
    ASSERT_OK(stepcGradReady(plan, rank.ids.data(), 1));
    ASSERT_OK(stepcPassEnd(plan));
    int64_t begin, end;
    ASSERT_OK(stepcPlanGetPart(plan, 0, &begin, &end));
    ASSERT_OK(stepcPlanGetGrad(plan, 0, &sum));
    ASSERT_EQ(1, sum.ndim);
    ASSERT_EQ(end - begin, sum.shape[0]);
    for (int64_t e = begin; e < end; ++e)
      EXPECT_EQ(
          (world.ranks[0].grads[0].get(e) + world.ranks[1].grads[0].get(e)) /
              2.0,
          double(static_cast<float *>(sum.data)[e - begin]));
    ASSERT_OK(stepcPlanForgetGrads(plan));
  });
}

} // namespace
