//===- TransferCallTest.cpp - calls about tensors with an entry -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/EntryModel.h"

#include <cstddef>
#include <deque>

using namespace stepc_test;

namespace {

/// Without start and finish nothing can cross, where there is somebody.
TEST(TransferCall, communicator) {
  for (int64_t size : {1, 2}) {
    EntryWorld world(getToyTransfers(), {size}, {makeEntry({8, 6}, A, A)});
    StepcCommunicator communicator = {};
    communicator.structSize = offsetof(StepcCommunicator, start);
    ASSERT_OK(
        stepcSimulatedWorldGetCommunicator(world.world, 0, &communicator));
    EntryRank rank(getToyTransfers(), {makeEntry({8, 6}, A, A)},
                   {{"dp", size, 0}}, &communicator, {}, 1);
    if (size == 1)
      EXPECT_STATUS(STEPC_OK, rank.bind(0, 1));
    else
      EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                     "tensor 0: its entry crosses 'dp', and the communicator "
                     "has no start and finish",
                     rank.bind(0, 1));
  }
}

/// The whole of a parameter is written, and parts that lie apart are refused
/// with what lies between.
TEST(TransferCall, overlap) {
  EntryWorld world(getToyTransfers(), {2},
                   {makeEntry({8, 6}, A, A), makeEntry({8, 6}, A, A)});
  EntryRank &rank = world.ranks[0];
  auto refuse = [&](const char *message, auto &&change) {
    EXPECT_REFUSED(STEPC_OVERLAP, message, rank.bind(0, 2, change));
  };
  // Rank 0 steps [0, 48) of all 96; the second lies behind that.
  DLTensor shifted = *rank.params[0].dl();
  shifted.byte_offset += 44 * 4;
  refuse("tensor 0: parameter and tensor 1: parameter share memory",
         [&](auto &binding, auto &, auto &) { binding.param = &shifted; });
  refuse("tensor 0: parameter and tensor 1: gradient share memory",
         [&](auto &binding, auto &, auto &) { binding.grad = &shifted; });
  float *mirror = static_cast<float *>(rank.params[0].dl()->data) + 47;
  refuse("tensor 0: parameter and tensor 1: countMirror share memory",
         [&](auto &binding, auto &, auto &) { binding.countMirror = mirror; });
  refuse("tensor 1: parameter and tensor 1: gradient share memory",
         [&](auto &binding, auto &, auto &) { binding.grad = binding.param; });
  ASSERT_OK(rank.bind(0, 2));
  StepcPlan *plan = rank.plan.get();
  const char *own = "tensor 0: gradient and tensor 0: parameter share memory";
  for (const DLTensor *grad :
       {(const DLTensor *)&shifted, (const DLTensor *)rank.params[0].dl()})
    EXPECT_REFUSED(STEPC_OVERLAP, own, stepcPlanSetGrad(plan, 0, grad));
  EXPECT_EQ(0, stepcPlanMoveGrad(plan, 0, rank.params[0].dl(), &shifted));
  // Parameters move one by one, and are compared when the next step begins.
  ASSERT_OK(stepcPlanSetParam(plan, 1, &shifted));
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 0: parameter and tensor 1: parameter share memory",
                 stepcStep(plan));
  ASSERT_OK(stepcPlanSetParam(plan, 1, rank.params[1].dl()));
}

/// Rows of what tensor parallelism has cut already, along the other dim or the
/// same one: ranks along b have other parts, here of the same values.
TEST(TransferCall, rowsOfParts) {
  for (bool same : {false, true}) {
    EntrySpec spec = makeEntry({7, 3}, A, A, 2.0);
    spec.rows = true;
    EntryWorld world(getToyTransfers(), {2, 2}, {spec});
    for (EntryRank &rank : world.ranks) {
      int64_t other = rank.axes[1].coordinate;
      std::vector<int64_t> shape = {same ? 14 : 7, same ? 3 : 6};
      std::vector<int64_t> start = {same ? 7 * other : 0, same ? 0 : 3 * other};
      std::vector<uint64_t> axes = {same ? A | B : A, same ? 0 : B};
      ASSERT_OK(rank.bind(
          0, 1, [&](StepcBinding &, StepcEntry &, StepcLayout &layout) {
            layout.shape = shape.data();
            layout.start = start.data();
            layout.dimAxes = axes.data();
          }));
      int64_t begin = -1, end = -1;
      ASSERT_OK(stepcPlanGetPart(rank.plan.get(), 0, &begin, &end));
      EXPECT_EQ(rank.axes[0].coordinate ? 12 : 0, begin);
      EXPECT_EQ(rank.axes[0].coordinate ? 21 : 12, end);
    }
    world.bindWhole(0, 1);
    world.run({"second", "momentum_buffer"});
  }
}

TEST(TransferCall, buckets) {
  EntryWorld world(getToyTransfers(), {2}, {makeEntry({8, 6}, A, A)});
  StepcPlan *plan = world.ranks[0].plan.get();
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "a bucket has -1 bytes, which is negative",
                 stepcPlanSetBuckets(plan, -1, 0, 0));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "a bucket has -3 bytes, which is negative",
                 stepcPlanSetBuckets(plan, 0, -3, 0));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "-2 buckets are to be under way, which is negative",
                 stepcPlanSetBuckets(plan, 0, 0, -2));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "plan is NULL",
                 stepcPlanSetBuckets(nullptr, 0, 0, 0));
  world.bindAll();
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcPlanSetBuckets after 1 tensors were bound",
                 stepcPlanSetBuckets(plan, 0, 0, 0));
  int64_t begin, end;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 1 does not exist, the plan has 1",
                 stepcPlanGetPart(plan, 1, &begin, &end));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "outBegin is NULL",
                 stepcPlanGetPart(plan, 0, nullptr, &end));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "outEnd is NULL",
                 stepcPlanGetPart(plan, 0, &begin, nullptr));
  ASSERT_OK(stepcStepBegin(plan));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcPlanSetBuckets between stepcStepBegin and stepcStepEnd",
                 stepcPlanSetBuckets(plan, 0, 0, 0));
}

/// Parameters that lie side by side are gathered there, and do not move alone.
TEST(TransferCall, sideBySide) {
  std::vector<EntrySpec> specs = {makeEntry({8, 6}, A, A, 2.0),
                                  makeEntry({5}, A, A, 2.0),
                                  makeEntry({7, 3}, A, A, 2.0)};
  int64_t bytes[2];
  for (bool beside : {false, true}) {
    EntryWorld world(getToyTransfers(), {2}, specs);
    std::deque<std::vector<float>> lines;
    for (EntryRank &rank : world.ranks) {
      std::vector<float> &line = lines.emplace_back();
      for (Array &param : rank.params)
        for (int64_t e = 0; e < param.size(); ++e)
          line.push_back(float(param.get(e)));
      size_t at = 0;
      for (Array &param : rank.params) {
        if (beside) {
          param.dl()->data = line.data() + at;
          param.dl()->byte_offset = 0;
        }
        at += size_t(param.size());
      }
    }
    world.bindAll();
    StepcPlan *plan = world.ranks[0].plan.get();
    bytes[beside] = getInfo(plan).bytesAllocated;
    for (int step = 0; step < 3; ++step) {
      world.fillGrads(uint32_t(step));
      world.step();
    }
    for (size_t r = 0; beside && r < 2; ++r) {
      size_t at = 0;
      for (const Array &param : world.params)
        for (int64_t e = 0; e < param.size(); ++e)
          ASSERT_EQ(float(param.get(e)), lines[r][at++]);
    }
    Array other(Type::F32, {5});
    if (beside)
      EXPECT_REFUSED(STEPC_NEEDS_BIND,
                     "tensor 1: parameter has moved; it was bound side by side "
                     "with others, with which it is gathered there",
                     stepcPlanSetParam(plan, 1, other.dl()));
    else
      EXPECT_STATUS(STEPC_OK, stepcPlanSetParam(plan, 1, other.dl()));
  }
  EXPECT_LT(bytes[1], bytes[0]);
}

/// A tensor without an entry steps all of it.
TEST(TransferCall, partOfAnother) {
  EntrySpec spec;
  spec.shape = {8, 6};
  EntryWorld world(getToyTransfers(), {2}, {spec});
  world.bindAll();
  int64_t begin = -1, end = -1;
  ASSERT_OK(stepcPlanGetPart(world.ranks[1].plan.get(), 0, &begin, &end));
  EXPECT_EQ(0, begin);
  EXPECT_EQ(48, end);
}

TEST(TransferCall, gradReady) {
  EntrySpec plain;
  plain.shape = {9};
  EntryWorld world(getToyTransfers(), {1},
                   {makeEntry({8, 6}, A, A), plain, makeEntry({8, 6}, A, 0)});
  world.bindAll();
  EntryRank &rank = world.ranks[0];
  StepcPlan *plan = rank.plan.get();
  int64_t ids[] = {0, 1, 2, 3};
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcGradReady without stepcStepBegin or stepcPassBegin",
                 stepcGradReady(plan, ids, 1));
  ASSERT_OK(rank.setGrad(2, false));
  ASSERT_OK(stepcStepBegin(plan));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "1 tensors were given, without ids",
                 stepcGradReady(plan, nullptr, 1));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 3 does not exist, the plan has 3",
                 stepcGradReady(plan, ids + 3, 1));
  EXPECT_REFUSED(STEPC_WRONG_STATE, "tensor 2 has no gradient",
                 stepcGradReady(plan, ids, 3));
  int64_t twice[] = {0, 0}, alsoTwice[] = {1, 1};
  EXPECT_REFUSED(
      STEPC_WRONG_STATE,
      "the gradient of tensor 0 has come since stepcStepBegin already",
      stepcGradReady(plan, twice, 2));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "tensor 1 has been stepped since stepcStepBegin",
                 stepcGradReady(plan, alsoTwice, 2));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "tensor 0 was bound with an entry, use stepcGradReady",
                 stepcStepTensors(plan, ids, 1));
  // Nothing of it has been marked.
  ASSERT_OK(stepcGradReady(plan, ids, 2));
  EXPECT_REFUSED(
      STEPC_WRONG_STATE,
      "the gradient of tensor 0 has come since stepcStepBegin already",
      stepcGradReady(plan, ids, 1));
  ASSERT_OK(stepcStepEnd(plan));
  int64_t count = -1;
  for (int64_t id : {0, 1, 2}) {
    ASSERT_OK(stepcPlanGetCount(plan, id, &count));
    EXPECT_EQ(id < 2, count);
  }
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "plan is NULL",
                 stepcGradReady(nullptr, ids, 1));
}

/// What transfers read and write stays where it is until the end.
TEST(TransferCall, setParamInAStep) {
  EntrySpec plain;
  plain.shape = {9};
  EntryWorld world(getToyTransfers(), {1}, {makeEntry({8, 6}, A, A), plain});
  world.bindAll();
  EntryRank &rank = world.ranks[0];
  StepcPlan *plan = rank.plan.get();
  Array moved(Type::F32, {8, 6}), other(Type::F32, {9});
  ASSERT_OK(stepcStepBegin(plan));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcPlanSetParam of a tensor with an entry between "
                 "stepcStepBegin and stepcStepEnd",
                 stepcPlanSetParam(plan, 0, moved.dl()));
  ASSERT_OK(stepcPlanSetParam(plan, 0, rank.params[0].dl()));
  ASSERT_OK(stepcPlanSetParam(plan, 1, other.dl()));
  ASSERT_OK(stepcStepEnd(plan));
  ASSERT_OK(stepcPlanSetParam(plan, 0, moved.dl()));
}

/// A tensor without an entry is stepped once, by the end.
TEST(TransferCall, withoutParts) {
  PackagePtr package = loadToyWithoutParts();
  EntrySpec plain;
  plain.shape = {9};
  EntryWorld world(package.get(), {1}, {makeEntry({8, 6}, A, A), plain});
  world.bindAll();
  world.stepWhole();
  StepcPlan *plan = world.ranks[0].plan.get();
  int64_t ids[] = {0, 1};
  ASSERT_OK(stepcStepBegin(plan));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "optimizer 'toy' steps all tensors at once, use stepcStep",
                 stepcStepTensors(plan, ids + 1, 1));
  ASSERT_OK(stepcGradReady(plan, ids, 2));
  ASSERT_OK(stepcStepEnd(plan));
  world.check({});
}

/// An end that is refused leaves the step as it is: it ends when what was wrong
/// is not any more, and the next one, too.
TEST(TransferCall, refusedEnd) {
  PackagePtr package = loadToyWithoutParts();
  EntrySpec plain;
  plain.shape = {9};
  EntryWorld world(package.get(), {2}, {makeEntry({8, 6}, A, A), plain, plain});
  world.bindAll();
  for (int step = 0; step < 2; ++step) {
    world.stepWhole();
    world.forEachRank([&](EntryRank &rank) {
      StepcPlan *plan = rank.plan.get();
      int64_t ids[] = {0, 1, 2};
      ASSERT_OK(stepcStepBegin(plan));
      ASSERT_OK(stepcGradReady(plan, ids, 2));
      DLTensor *param = rank.params[2].dl();
      ASSERT_OK(stepcPlanSetParam(plan, 2, rank.params[1].dl()));
      EXPECT_EQ(STEPC_OVERLAP, stepcStepEnd(plan));
      ASSERT_OK(stepcPlanSetParam(plan, 2, param));
      ASSERT_OK(stepcGradReady(plan, ids + 2, 1));
      ASSERT_OK(stepcStepEnd(plan));
    });
    world.check({});
  }
}

/// Where no tensor has an entry it steps them.
TEST(TransferCall, gradReadyWithoutEntries) {
  Model model({{Type::F32, {9}}, {Type::F32, {9}}});
  ASSERT_OK(stepcStepBegin(model.plan.get()));
  ASSERT_OK(stepcGradReady(model.plan.get(), model.ids.data(), 2));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "tensor 0 has been stepped since stepcStepBegin",
                 stepcGradReady(model.plan.get(), model.ids.data(), 1));
  ASSERT_OK(stepcStepEnd(model.plan.get()));
  model.stepReference();
  model.check();
}

} // namespace
