//===- TransferDistinctTest.cpp - tensors of some ranks alone -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/EntryModel.h"

using namespace stepc_test;

namespace {

struct BucketBytes {
  int64_t gradients, parameters;
};

void copyArray(const Array &from, Array &to) {
  for (int64_t k = 0; k < from.size(); ++k)
    to.set(k, from.get(k));
}

/// Two by two ranks, of which the second along b have other tensors between
/// those that all have; and ranks that have these alone.
struct Distinct {
  Distinct(const EntrySpec &shared, const EntrySpec &distinct,
           BucketBytes buckets);
  void step(uint32_t seed);

  std::vector<EntrySpec> all;
  EntryWorld plain, world;
  /// Of each tensor of a rank which of all it is; no less than there are:
  /// another.
  std::vector<std::vector<size_t>> which;
};

std::vector<EntrySpec> makeShared(const EntrySpec &shared) {
  std::vector<EntrySpec> all(10, shared);
  for (size_t i = 0; i < all.size(); ++i)
    all[i].shape = {int64_t(5 + 3 * i)};
  return all;
}

Distinct::Distinct(const EntrySpec &shared, const EntrySpec &distinct,
                   BucketBytes buckets)
    : all(makeShared(shared)), plain(getToyTransfers(), {2, 2}, all, {},
                                     buckets.gradients, buckets.parameters),
      world(getToyTransfers(), {2, 2}, {}), which(4) {
  plain.bindAll();
  EXPECT_EQ(STEPC_OK, stepcSimulatedWorldSetDeadline(world.world, 5000));
  world.ranks.clear();
  for (size_t r = 0; r < 4; ++r) {
    std::vector<EntrySpec> specs;
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t k = 0; k < (r % 2 ? i % 3 + 2 : 1); ++k) {
        specs.push_back(k ? distinct : all[i]);
        which[r].push_back(k ? all.size() : i);
      }
    StepcCommunicator communicator = {};
    communicator.structSize = sizeof(communicator);
    EXPECT_EQ(STEPC_OK, stepcSimulatedWorldGetCommunicator(
                            world.world, int64_t(r), &communicator));
    EntryRank &rank =
        world.ranks.emplace_back(getToyTransfers(), specs, plain.ranks[r].axes,
                                 &communicator, makeConfig(1), 1);
    EXPECT_EQ(STEPC_OK, stepcPlanSetBuckets(rank.plan.get(), buckets.gradients,
                                            buckets.parameters, 0));
    for (size_t i = 0; i < specs.size(); ++i)
      if (which[r][i] < all.size())
        copyArray(plain.ranks[r].params[which[r][i]], rank.params[i]);
    EXPECT_EQ(STEPC_OK, rank.bind(0, specs.size())) << stepcLastErrorMessage();
  }
}

void Distinct::step(uint32_t seed) {
  plain.fillGrads(seed);
  for (size_t r = 0; r < 4; ++r)
    for (size_t i = 0; i < which[r].size(); ++i)
      if (which[r][i] < all.size())
        copyArray(plain.ranks[r].grads[which[r][i]], world.ranks[r].grads[i]);
      else
        world.ranks[r].grads[i].fill(seed);
  plain.step();
  world.forEachRank([&](EntryRank &rank) {
    StepcStatus status = seed % 2 ? rank.step() : rank.stepByEvents(seed, 1);
    EXPECT_EQ(STEPC_OK, status) << rank.message;
  });
  for (size_t r = 0; r < 4; ++r)
    for (size_t i = 0; i < which[r].size(); ++i)
      if (which[r][i] < all.size())
        EXPECT_EQ(plain.ranks[r].params[which[r][i]].bits(),
                  world.ranks[r].params[i].bits())
            << "rank " << r << ", tensor " << i;
}

/// What ranks have together crosses in the same order on all, whatever else
/// they have.
TEST(Transfer, otherTensorsOnSomeRanks) {
  struct Axes {
    uint64_t whole, partial;
  };
  for (BucketBytes buckets : {BucketBytes{1, 1}, BucketBytes{60, 200},
                              BucketBytes{200, 60}, BucketBytes{0, 0}})
    for (Axes shared : {Axes{A | B, A | B}, Axes{A | B, 0}, Axes{0, A | B},
                        Axes{A, A | B}, Axes{B, A | B}})
      for (Axes distinct : {Axes{A, A}, Axes{0, A}, Axes{A, 0}})
        for (bool owned : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << buckets.gradients << ", " << buckets.parameters
                       << ": " << shared.whole << ", " << shared.partial
                       << " and " << distinct.whole << ", " << distinct.partial
                       << (owned ? ", owned" : ""));
          EntrySpec first = makeEntry({}, shared.whole, shared.partial);
          EntrySpec second = makeEntry({40}, distinct.whole, distinct.partial);
          first.owned = owned && first.whole;
          second.owned = owned && second.whole;
          Distinct ranks(first, second, buckets);
          for (uint32_t seed : {1, 2})
            ranks.step(seed);
          if (HasFailure())
            return;
        }
}

} // namespace
