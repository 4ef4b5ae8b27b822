//===- TransferTest.cpp - gradients that come, parameters that leave ------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/EntryModel.h"

#include <random>

using namespace stepc_test;

namespace {

const std::vector<const char *> kStates = {"second", "momentum_buffer"};

void runToy(EntryWorld &world) { world.run(kStates); }

struct Buckets {
  int64_t gradients, parameters;
};
const std::vector<Buckets> kBuckets = {
    {1, 1}, {100, 1000}, {1000, 100}, {500, 500}, {0, 1}, {1, 0}, {0, 0}};

TEST(Transfer, zero1) {
  for (Buckets buckets : kBuckets) {
    SCOPED_TRACE(testing::Message()
                 << buckets.gradients << ", " << buckets.parameters);
    EntryWorld world(getToyTransfers(), {3}, makeEntries(A, 0), {},
                     buckets.gradients, buckets.parameters);
    world.bindAll();
    runToy(world);
  }
}

TEST(Transfer, zero2) {
  for (int64_t size : {1, 2, 3, 5})
    for (Buckets buckets : kBuckets) {
      SCOPED_TRACE(testing::Message() << size << " ranks, " << buckets.gradients
                                      << ", " << buckets.parameters);
      EntryWorld world(getToyTransfers(), {size},
                       makeEntries(A, A, double(size)), {}, buckets.gradients,
                       buckets.parameters, 1, size % 3);
      world.bindAll();
      runToy(world);
    }
}

TEST(Transfer, allReduce) {
  for (Buckets buckets : kBuckets) {
    EntryWorld world(getToyTransfers(), {4}, makeEntries(0, A, 4.0), {},
                     buckets.gradients, buckets.parameters);
    world.bindAll();
    runToy(world);
  }
}

/// Shards in each of several replicas; and the same the other way round.
TEST(Transfer, replicas) {
  for (std::vector<int64_t> sizes :
       {std::vector<int64_t>{2, 3}, {3, 2}, {1, 4}, {4, 1}})
    for (auto [whole, partial] :
         {std::pair(A, A | B), std::pair(B, A | B), std::pair(A, B),
          std::pair(A | B, A | B), std::pair(A, A)}) {
      SCOPED_TRACE(testing::Message() << sizes[0] << " times " << sizes[1]
                                      << ", " << whole << ", " << partial);
      std::vector<EntrySpec> specs = makeEntries(whole, partial, 6.0);
      for (EntrySpec &spec : specs)
        spec.wire = Wire::BF16;
      EntryWorld world(getToyTransfers(), sizes, specs, {}, 300, 700);
      world.bindAll();
      runToy(world);
    }
}

/// Rows of dim 0, as torch.chunk has them.
TEST(Transfer, rows) {
  for (int64_t size : {2, 3, 4}) {
    std::vector<EntrySpec> specs;
    for (const EntrySpec &spec : makeEntries(A, A, double(size)))
      if (!spec.shape.empty()) {
        specs.push_back(spec);
        specs.back().rows = true;
      }
    EntryWorld world(getToyTransfers(), {size}, specs, {}, 600, 900);
    world.bindAll();
    int64_t begin = -1, end = -1;
    ASSERT_OK(stepcPlanGetPart(world.ranks[1].plan.get(), 0, &begin, &end));
    int64_t rows = (7 + size - 1) / size;
    EXPECT_EQ(10 * rows, begin);
    EXPECT_EQ(10 * std::min<int64_t>(2 * rows, 7), end);
    runToy(world);
  }
}

/// Of all types, in all types, divided before and behind the sum.
TEST(Transfer, types) {
  for (bool before : {false, true}) {
    std::vector<EntrySpec> specs;
    for (Type type : {Type::F32, Type::BF16, Type::F64})
      for (Wire wire : {Wire::Own, Wire::F64, Wire::F32, Wire::BF16, Wire::F16})
        for (auto [whole, partial] :
             {std::pair(A, A), std::pair(A, A | B), std::pair(uint64_t(0), A)})
          for (int64_t length : {5, 90}) {
            if (wire == Wire::F64 && type != Type::F64)
              continue;
            EntrySpec spec = makeEntry({length}, whole, partial, 3.0);
            spec.type = type;
            spec.wire = wire;
            spec.before = before;
            specs.push_back(spec);
            spec.owned = whole != 0;
            specs.push_back(spec);
          }
    for (Type type : {Type::F32, Type::BF16, Type::F64})
      for (bool owned : {false, true}) {
        specs.push_back(makeEntry({77}, A, 0));
        specs.back().type = type;
        specs.back().owned = owned;
      }
    EntryWorld world(getToyTransfers(), {3, 2}, specs, {}, 200, 300);
    world.bindAll();
    runToy(world);
  }
}

/// Of large tensors, by several threads.
TEST(Transfer, threads) {
  std::vector<EntrySpec> specs = {
      makeEntry({300, 401}, A, A, 2.0), makeEntry({70001}, A, A, 2.0),
      makeEntry({40, 41}, A, A | B, 4.0), makeEntry({100000}, 0, A | B)};
  specs[1].wire = Wire::BF16;
  for (StepcPlanConfig config : {makeConfig(1), makeConfig(3, 600)}) {
    EntryWorld world(getToyTransfers(), {2, 2}, specs, config, 100000, 0);
    world.bindAll();
    runToy(world);
  }
}

/// Beside tensors without an entry, in groups, of which some have no gradient.
TEST(Transfer, mixed) {
  std::vector<EntrySpec> specs;
  for (int i = 0; i < 24; ++i) {
    EntrySpec spec =
        makeEntry({3 + i, 5}, i % 3 ? A : 0, i % 4 == 0 ? 0 : uint64_t(A), 1.0);
    spec.owned = i % 3 && i % 5 == 0;
    spec.divisor = spec.partial ? 3.0 : 1.0;
    spec.group = i % 2;
    spec.type = i % 7 == 0 ? Type::F64 : Type::F32;
    specs.push_back(spec);
  }
  EntryWorld world(getToyTransfers(), {3}, specs, {}, 400, 1200, 2);
  world.bindAll();
  runToy(world);
  std::mt19937 random(7);
  for (uint32_t step = 0; step < 6; ++step) {
    std::vector<bool> missing(specs.size());
    for (size_t i = 0; i < specs.size(); ++i)
      missing[i] = random() % 3 == 0 || step == 3;
    world.setMissing(missing);
    world.fillGrads(step + 50);
    if (step % 2)
      world.stepByEvents(step, 2);
    else
      world.step();
    world.check(kStates);
  }
}

/// Tensors that are added lie in buckets of their own; what ranks have of the
/// others stays.
TEST(Transfer, added) {
  std::vector<EntrySpec> specs = makeEntries(A, A, 2.0);
  EntryWorld world(getToyTransfers(), {2}, specs);
  world.bind(0, 4);
  int64_t begin, end, later;
  ASSERT_OK(stepcPlanGetPart(world.ranks[1].plan.get(), 0, &begin, &end));
  world.ranks[0].specs.resize(specs.size());
  for (size_t half : {size_t(4), size_t(8)}) {
    world.fillGrads(uint32_t(half));
    world.stepWhole();
    world.forEachRank([](EntryRank &rank) {
      EXPECT_EQ(STEPC_OK, rank.step()) << rank.message;
    });
    world.check(kStates);
    world.bind(half, half == 4 ? 8 : specs.size());
    ASSERT_OK(stepcPlanGetPart(world.ranks[1].plan.get(), 0, &later, &end));
    EXPECT_EQ(begin, later);
  }
  runToy(world);
}

/// What is sent of a gradient that is not there, or no longer.
TEST(Transfer, absentIsZero) {
  std::vector<float> sent;
  StepcCommunicator communicator = {};
  communicator.structSize = sizeof(communicator);
  communicator.context = &sent;
  communicator.reduce = [](void *, const StepcReduceCall *, int64_t, char *,
                           size_t) -> int32_t { return 0; };
  communicator.start = [](void *context, const StepcTransfer *transfer, void **,
                          char *, size_t) -> int32_t {
    auto *send = static_cast<const float *>(transfer->send);
    if (transfer->kind == STEPC_ALL_TO_ALL)
      static_cast<std::vector<float> *>(context)->assign(
          send, send + (transfer->sendBytes[0] + transfer->sendBytes[1]) / 4);
    return 0;
  };
  communicator.finish = [](void *, void *, char *, size_t) -> int32_t {
    return 0;
  };
  EntryRank rank(getToyTransfers(),
                 {makeEntry({2}, A, A), makeEntry({2}, A, A)}, {{"dp", 2, 0}},
                 &communicator, {}, 1);
  for (Array &grad : rank.grads)
    for (int64_t k : {0, 1})
      grad.set(k, 5.0);
  ASSERT_OK(rank.bind(0, 2));
  ASSERT_OK(rank.step());
  EXPECT_EQ((std::vector<float>{5, 5, 5, 5}), sent);
  ASSERT_OK(rank.setGrad(0, false));
  ASSERT_OK(rank.step());
  EXPECT_EQ((std::vector<float>{0, 0, 5, 5}), sent);
}

/// Kernels work on whole vectors: in a bucket of 70 and 63 elements rank 1 of 3
/// begins at 48, and rank 2 at 96 of the line, 26 of the second.
TEST(Transfer, cutsAtVectors) {
  EntryWorld world(getToyTransfers(), {3},
                   {makeEntry({7, 10}, A, A), makeEntry({63}, A, A)});
  world.bindAll();
  std::vector<int64_t> found;
  for (EntryRank &rank : world.ranks)
    for (int64_t id : {0, 1}) {
      int64_t begin, end;
      ASSERT_OK(stepcPlanGetPart(rank.plan.get(), id, &begin, &end));
      found.insert(found.end(), {begin, end});
    }
  EXPECT_EQ((std::vector<int64_t>{0, 48, 0, 0, 48, 70, 0, 26, 70, 70, 26, 63}),
            found);
}

/// Without a gradient when it is bound.
TEST(Transfer, lateGradients) {
  for (uint64_t partial : {uint64_t(0), A}) {
    std::vector<EntrySpec> specs = makeEntries(A, partial);
    EntryWorld world(getToyTransfers(), {2}, specs);
    for (EntryRank &rank : world.ranks)
      rank.missing.assign(specs.size(), true);
    world.bindAll();
    world.setMissing(std::vector<bool>(specs.size(), false));
    runToy(world);
  }
}

/// A parameter and a gradient that move.
TEST(Transfer, moved) {
  for (uint64_t partial : {uint64_t(0), A}) {
    std::vector<EntrySpec> specs = makeEntries(A, partial);
    EntryWorld world(getToyTransfers(), {2}, specs, {}, 300, 300);
    world.bindAll();
    for (uint32_t step = 1; step <= 3; ++step) {
      world.fillGrads(step);
      for (EntryRank &rank : world.ranks) {
        std::vector<Array> params, grads;
        for (size_t i = 0; i < specs.size(); ++i) {
          params.emplace_back(Type::F32, specs[i].shape);
          grads.emplace_back(Type::F32, specs[i].shape);
          for (int64_t k = 0; k < params[i].size(); ++k) {
            params[i].set(k, rank.params[i].get(k));
            grads[i].set(k, rank.grads[i].get(k));
          }
        }
        rank.params.swap(params);
        rank.grads.swap(grads);
        for (size_t i = 0; i < specs.size(); ++i) {
          StepcPlan *plan = rank.plan.get();
          const DLTensor *param = rank.params[i].dl(),
                         *grad = rank.grads[i].dl();
          EXPECT_EQ(0, stepcPlanMoveGrad(plan, rank.ids[i], param, grad));
          ASSERT_OK(stepcPlanSetParam(plan, rank.ids[i], param));
          if (step == 2 && rank.grads[i].size())
            EXPECT_EQ(1, stepcPlanMoveGrad(plan, rank.ids[i], param, grad));
          ASSERT_OK(stepcPlanSetGrad(plan, rank.ids[i], grad));
        }
      }
      world.step();
      world.check(kStates);
    }
  }
}

/// What crosses, and that it is counted: N elements of 4 bytes in each bucket,
/// of which a rank sends those that others have.
TEST(Transfer, counters) {
  std::vector<EntrySpec> specs(4, makeEntry({64}, A, A));
  EntryWorld world(getToyTransfers(), {4}, specs, {}, 512, 512);
  world.bindAll();
  world.step();
  world.step();
  for (int64_t r = 0; r < 4; ++r) {
    StepcPlanInfo info = getInfo(world.ranks[size_t(r)].plan.get());
    StepcSimulatedCounters counters = world.getCounters(r);
    EXPECT_EQ(0, info.exchangeRounds);
    EXPECT_EQ(2 * 2 * 2, info.exchangeCalls);
    EXPECT_EQ(2 * 2 * (3 * 4 * 32 + 3 * 4 * 32), info.exchangeBytes);
    EXPECT_EQ(info.exchangeCalls, counters.calls);
    EXPECT_EQ(info.exchangeBytes, counters.bytes);
  }
}

/// Where nothing takes part nothing crosses.
TEST(Transfer, nothing) {
  std::vector<EntrySpec> specs = makeEntries(A, A);
  EntryWorld world(getToyTransfers(), {2}, specs);
  world.bindAll();
  world.setMissing(std::vector<bool>(specs.size(), true));
  world.step();
  world.stepByEvents(1, 3);
  world.check(kStates);
  EXPECT_EQ(0, world.getCounters(0).calls);
}

/// Buckets of the least and of the largest size.
TEST(Transfer, wholeModelInOneBucketOrEach) {
  for (int64_t bytes : {int64_t(4), int64_t(1) << 40}) {
    EntryWorld world(getToyTransfers(), {2}, makeEntries(A, A), {}, bytes,
                     bytes);
    world.bindAll();
    runToy(world);
  }
}

} // namespace
