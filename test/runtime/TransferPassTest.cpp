//===- TransferPassTest.cpp - gradients brought ahead of a step -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/EntryModel.h"

using namespace stepc_test;

namespace {

std::vector<EntrySpec> makeSpecs(uint64_t whole, uint64_t partial,
                                 double divisor) {
  std::vector<EntrySpec> specs;
  for (std::vector<int64_t> shape : std::vector<std::vector<int64_t>>{
           {7, 10}, {}, {3, 0}, {64, 3}, {5}, {39, 70}, {100}, {16}})
    specs.push_back(makeEntry(shape, whole, partial, divisor));
  specs[3].type = specs[5].type = Type::BF16;
  specs[6].type = Type::F64;
  return specs;
}

void forget(EntryWorld &world) {
  for (EntryRank &rank : world.ranks)
    ASSERT_OK(stepcPlanForgetGrads(rank.plan.get()));
}

/// Steps of one pass and of several, some of them made twice.
void runPasses(EntryWorld &world) {
  world.bindAll();
  for (uint32_t step = 1; step <= 4; ++step) {
    forget(world);
    for (uint32_t number = 0; number < step; ++number)
      world.pass(10 * step + number, number == 0);
    for (uint32_t again = 0; again < 1 + step % 2; ++again) {
      ASSERT_OK(stepcStep(world.plan.get()));
      world.forEachRank([&](EntryRank &rank) {
        // What has been brought is known without being named.
        StepcStatus status = again ? stepcStepBegin(rank.plan.get()) : STEPC_OK;
        if (status == STEPC_OK)
          status = again ? stepcStepEnd(rank.plan.get())
                         : stepcStep(rank.plan.get());
        EXPECT_EQ(STEPC_OK, status) << stepcLastErrorMessage();
      });
      world.check({"second", "momentum_buffer"});
    }
  }
}

TEST(TransferPass, flat) {
  for (bool before : {false, true}) {
    std::vector<EntrySpec> specs = makeSpecs(A, A, 3.0);
    for (EntrySpec &spec : specs)
      spec.before = before;
    EntryWorld world(getToyTransfers(), {3}, specs, {}, 600, 900);
    runPasses(world);
  }
}

TEST(TransferPass, replicas) {
  EntryWorld world(getToyTransfers(), {2, 2}, makeSpecs(A, A | B, 4.0), {}, 600,
                   900);
  runPasses(world);
}

TEST(TransferPass, allReduce) {
  EntryWorld world(getToyTransfers(), {3}, makeSpecs(0, A, 3.0), {}, 600, 900);
  runPasses(world);
}

TEST(TransferPass, owned) {
  std::vector<EntrySpec> specs = makeSpecs(A, A, 3.0);
  for (EntrySpec &spec : specs)
    spec.owned = true;
  EntryWorld world(getToyTransfers(), {3}, specs, {}, 600, 900);
  runPasses(world);
}

TEST(TransferPass, wire) {
  std::vector<EntrySpec> specs = makeSpecs(A, A, 2.0);
  for (EntrySpec &spec : specs)
    spec.wire = Wire::BF16;
  EntryWorld world(getToyTransfers(), {2}, specs, {}, 600, 900);
  runPasses(world);
}

/// Where a step is one for all tensors.
TEST(TransferPass, withoutParts) {
  PackagePtr package = loadToyWithoutParts();
  EntryWorld world(package.get(), {3}, makeSpecs(A, A, 3.0), {}, 600, 900);
  runPasses(world);
}

TEST(TransferPass, oneRank) {
  EntryWorld world(getToyTransfers(), {1}, makeSpecs(A, A, 1.0), {}, 600, 900);
  runPasses(world);
}

/// Who binds anew before the step takes along what has come.
TEST(TransferPass, taken) {
  std::vector<EntrySpec> specs = makeSpecs(A, A, 2.0);
  EntryWorld first(getToyTransfers(), {2}, specs, {}, 600, 900);
  EntryWorld second(getToyTransfers(), {2}, specs, {}, 600, 900);
  first.bindAll();
  second.bindAll();
  first.pass(1, true);
  first.pass(2, false);
  second.setMissing(std::vector<bool>(specs.size(), true));
  for (size_t r = 0; r < 2; ++r)
    ASSERT_OK(stepcPlanTakeGrads(second.ranks[r].plan.get(),
                                 first.ranks[r].plan.get()));
  for (EntryWorld *world : {&first, &second}) {
    ASSERT_OK(stepcStep(first.plan.get()));
    world->forEachRank([](EntryRank &rank) {
      EXPECT_EQ(STEPC_OK, rank.step()) << rank.message;
    });
    for (size_t i = 0; world == &second && i < specs.size(); ++i)
      EXPECT_EQ(first.ranks[0].params[i].bits(),
                second.ranks[0].params[i].bits());
  }
  StepcPlan *plan = second.ranks[0].plan.get();
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "from is NULL",
                 stepcPlanTakeGrads(plan, nullptr));
  EXPECT_REFUSED(STEPC_BUSY, "another thread is inside the plan",
                 stepcPlanTakeGrads(plan, plan));
  EXPECT_REFUSED(
      STEPC_INVALID_ARGUMENT,
      "tensor 0 is in the other plan tensor 0, of which this rank has another "
      "part",
      stepcPlanTakeGrads(plan, first.ranks[1].plan.get()));
  EntryWorld less(getToyTransfers(), {2}, {specs[0]});
  less.bindAll();
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "1 tensors with an entry are bound, in the other plan 8",
                 stepcPlanTakeGrads(less.ranks[0].plan.get(), plan));
}

/// A gradient that other ranks alone have had, in a pass or a step.
TEST(TransferPass, gradientsOfOthers) {
  std::vector<EntrySpec> specs = makeSpecs(A, A, 2.0);
  for (bool pass : {false, true}) {
    EntryWorld world(getToyTransfers(), {2}, specs, {}, 600, 900);
    world.bindAll();
    for (size_t i = 0; i < specs.size(); ++i) {
      // Of zeros that are not there.
      Array &zeros = world.ranks[i % 2].grads[i];
      for (int64_t e = 0; e < zeros.size(); ++e)
        zeros.set(e, 0.0);
      ASSERT_OK(world.ranks[i % 2].setGrad(i, false));
    }
    world.stepWhole();
    world.forEachRank([&](EntryRank &rank) {
      StepcPlan *plan = rank.plan.get();
      std::vector<int64_t> own, others;
      for (size_t i = 0; i < specs.size(); ++i)
        (rank.missing[i] ? others : own).push_back(rank.ids[i]);
      auto name = [&](const std::vector<int64_t> &ids) {
        ASSERT_OK(stepcGradReady(plan, ids.data(), int64_t(ids.size())));
      };
      if (pass) {
        ASSERT_OK(stepcPassBegin(plan));
        name(own);
        ASSERT_OK(stepcPassEnd(plan));
        for (int64_t id : own)
          ASSERT_OK(stepcPlanSetGrad(plan, id, nullptr));
      }
      ASSERT_OK(stepcStepBegin(plan));
      name(others);
      if (!pass)
        name(own);
      ASSERT_OK(stepcStepEnd(plan));
    });
    world.check({"second", "momentum_buffer"});
  }
}

/// Of what nothing has come there is nothing to send it from, until the end.
TEST(TransferPass, lateTensorAlone) {
  std::vector<EntrySpec> specs(9, makeEntry({64}, A, A, 2.0));
  EntryWorld world(getToyTransfers(), {2}, specs, {}, 1, 1);
  world.bindAll();
  for (size_t i = 0; i < 7; ++i)
    for (EntryRank &rank : world.ranks)
      ASSERT_OK(rank.setGrad(i, false));
  world.setMissing({true, true, true, true, true, true, true, false, false});
  world.stepWhole();
  world.forEachRank([](EntryRank &rank) {
    EXPECT_EQ(STEPC_OK, rank.pass(1, 1)) << rank.message;
    EXPECT_EQ(STEPC_OK, rank.step()) << rank.message;
  });
  world.check({"second", "momentum_buffer"});
}

TEST(TransferPass, refused) {
  EntrySpec plain;
  plain.shape = {9};
  EntryWorld world(getToyTransfers(), {1},
                   {makeEntry({8, 6}, A, A), plain, makeEntry({8, 6}, A, 0),
                    makeEntry({8, 6}, A, A)});
  world.bindAll();
  EntryRank &rank = world.ranks[0];
  StepcPlan *plan = rank.plan.get();
  int64_t ids[] = {0, 1, 2, 3};
  EXPECT_REFUSED(STEPC_WRONG_STATE, "stepcPassEnd without stepcPassBegin",
                 stepcPassEnd(plan));
  ASSERT_OK(stepcPassBegin(plan));
  for (auto call : {stepcStep, stepcPassBegin})
    EXPECT_EQ(STEPC_WRONG_STATE, call(plan));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcStepBegin between stepcPassBegin and stepcPassEnd",
                 stepcStepBegin(plan));
  for (int64_t id : {1, 2})
    EXPECT_REFUSED(STEPC_WRONG_STATE,
                   ("the gradient of tensor " + std::to_string(id) +
                    " is no sum over ranks: a step reads it where it is")
                       .c_str(),
                   stepcGradReady(plan, &id, 1));
  ASSERT_OK(stepcGradReady(plan, ids, 1));
  EXPECT_REFUSED(
      STEPC_WRONG_STATE,
      "the gradient of tensor 0 has come since stepcPassBegin already",
      stepcGradReady(plan, ids, 1));
  ASSERT_OK(stepcPassEnd(plan));
  // A pass that is forgotten has ended.
  ASSERT_OK(stepcPassBegin(plan));
  ASSERT_OK(stepcPlanForgetGrads(plan));
  EXPECT_REFUSED(STEPC_WRONG_STATE, "stepcPassEnd without stepcPassBegin",
                 stepcPassEnd(plan));
  ASSERT_OK(stepcPassBegin(plan));
  ASSERT_OK(stepcGradReady(plan, ids, 1));
  ASSERT_OK(stepcPassEnd(plan));
  const char *both =
      "tensor 0 has a gradient, and passes have brought gradients of its "
      "bucket; bring it by stepcPassBegin, or stepcPlanForgetGrads";
  EXPECT_REFUSED(STEPC_WRONG_STATE, both, stepcStep(plan));
  ASSERT_OK(stepcStepBegin(plan));
  EXPECT_REFUSED(STEPC_WRONG_STATE, both, stepcGradReady(plan, ids, 1));
  ASSERT_OK(stepcGradReady(plan, ids + 1, 2));
  ASSERT_OK(stepcPlanSetGrad(plan, 3, nullptr));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "tensor 3 comes behind its bucket, which passes have brought; "
                 "what they have not is named first, in one call",
                 stepcGradReady(plan, ids + 3, 1));
  ASSERT_OK(stepcStepEnd(plan));
  ASSERT_OK(stepcPlanSetGrad(plan, 3, rank.grads[3].dl()));
  ASSERT_OK(stepcPlanForgetGrads(plan));
  ASSERT_OK(stepcStep(plan));
}

} // namespace
