//===- TransferFailureTest.cpp - ranks that do not come, memory -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/EntryModel.h"
#include "support/Interpose.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

using namespace stepc_test;

namespace {

std::vector<EntrySpec> makeFour(uint64_t partial) {
  std::vector<EntrySpec> specs;
  for (int64_t rows : {5, 40, 3, 17}) {
    EntrySpec spec;
    spec.shape = {rows, 10};
    spec.whole = A;
    spec.partial = partial;
    specs.push_back(spec);
  }
  return specs;
}

/// A communicator of two ranks, of which there is one: what it starts comes
/// from nobody, but for the transfer that fails.
struct Lonely {
  int64_t starts = 0, finishes = 0;
  int64_t failStart = -1, failFinish = -1;
  bool throws = false, silent = false, records = false;
  /// What transfers were to receive, of which some have failed: written as late
  /// as may be.
  std::vector<std::pair<char *, size_t>> received, late;

  StepcCommunicator get() {
    StepcCommunicator communicator = {};
    communicator.structSize = sizeof(communicator);
    communicator.context = this;
    communicator.reduce = [](void *, const StepcReduceCall *, int64_t, char *,
                             size_t) -> int32_t { return 0; };
    communicator.start = [](void *context, const StepcTransfer *transfer,
                            void **, char *message, size_t size) -> int32_t {
      auto *own = static_cast<Lonely *>(context);
      if (own->records && transfer->kind == STEPC_ALL_TO_ALL)
        own->received.push_back(
            {static_cast<char *>(transfer->receive),
             size_t(transfer->receiveBytes[0] + transfer->receiveBytes[1])});
      if (own->starts++ == own->failStart)
        return own->fail(message, size);
      if (transfer->kind == STEPC_ALL_TO_ALL)
        std::memset(
            transfer->receive, 0,
            size_t(transfer->receiveBytes[0] + transfer->receiveBytes[1]));
      return 0;
    };
    communicator.finish = [](void *context, void *, char *message,
                             size_t size) -> int32_t {
      auto *own = static_cast<Lonely *>(context);
      for (auto [memory, bytes] : own->late)
        std::memset(memory, 0x41, bytes);
      return own->finishes++ == own->failFinish ? own->fail(message, size) : 0;
    };
    return communicator;
  }

private:
  int32_t fail(char *message, size_t size) const {
    if (throws)
      throw std::runtime_error("as asked");
    if (!silent)
      std::strncpy(message, "as asked", size);
    return 7;
  }
};

struct LonelyRank {
  LonelyRank(uint64_t partial, Lonely &lonely, size_t numTensors = 4)
      : communicator(lonely.get()),
        rank(getToyTransfers(), makeFour(partial), {{"dp", 2, 0}},
             &communicator, makeConfig(2), 1) {
    EXPECT_EQ(STEPC_OK, stepcPlanSetBuckets(rank.plan.get(), 1, 1, 0));
    for (Array &grad : rank.grads)
      grad.fill(3);
    for (size_t i = numTensors; i < 4; ++i)
      rank.missing[i] = true;
    EXPECT_EQ(STEPC_OK, rank.bind(0, numTensors)) << stepcLastErrorMessage();
  }

  StepcCommunicator communicator;
  EntryRank rank;
};

std::string getBits(const EntryRank &rank) {
  std::string bits;
  for (const Array &param : rank.params)
    bits += param.bits();
  return bits;
}

/// Before the first bucket has come nothing was written, and the next step
/// succeeds; whatever was under way is finished.
TEST(TransferFailure, beforeAnythingIsWritten) {
  for (bool events : {false, true})
    for (bool throws : {false, true})
      for (bool silent : {false, true}) {
        Lonely lonely;
        LonelyRank lonelyRank(A, lonely);
        EntryRank &rank = lonelyRank.rank;
        std::string before = getBits(rank);
        lonely.throws = throws;
        lonely.silent = silent;
        for (bool start : {true, false}) {
          lonely.starts = lonely.finishes = 0;
          (start ? lonely.failStart : lonely.failFinish) = start ? 2 : 0;
          StepcStatus status = events ? rank.stepByEvents(1, 4) : rank.step();
          EXPECT_STATUS(STEPC_COMMUNICATION_ERROR, status);
          std::string words = throws   ? "the communicator threw"
                              : silent ? "the communicator returned 7"
                                       : "as asked";
          EXPECT_EQ("gradients of tensor " + std::string(start ? "2" : "0") +
                        ": " + words +
                        "; nothing was written, parameters and states are as "
                        "before",
                    rank.message);
          EXPECT_EQ(before, getBits(rank));
          EXPECT_EQ(lonely.starts, start ? 3 : 4);
          EXPECT_EQ(lonely.finishes, start ? 2 : 4);
          lonely.failStart = lonely.failFinish = -1;
          for (size_t i = 0; i < 4; ++i)
            ASSERT_OK(rank.setGrad(i, true));
          int64_t count = -1;
          ASSERT_OK(stepcPlanGetCount(rank.plan.get(), 0, &count));
          EXPECT_EQ(0, count);
        }
        EXPECT_STATUS(STEPC_OK, rank.step());
      }
}

/// After that the plan is poisoned.
TEST(TransferFailure, midway) {
  // Four starts, the first lands, its gather starts, the second lands.
  for (int64_t fail : {4, 6}) {
    Lonely lonely;
    LonelyRank lonelyRank(A, lonely);
    EntryRank &rank = lonelyRank.rank;
    lonely.failStart = fail == 4 ? fail : -1;
    lonely.failFinish = fail == 4 ? -1 : fail;
    EXPECT_STATUS(STEPC_COMMUNICATION_ERROR, rank.step());
    EXPECT_EQ(fail == 4 ? "parameters of tensor 0: as asked"
                        : "parameters of tensor 2: as asked",
              rank.message);
    EXPECT_STATUS(STEPC_POISONED, rank.step());
    // All that was started has been finished.
    EXPECT_EQ(lonely.starts - (fail == 4), lonely.finishes);
  }
}

/// What failed is written long after, in later steps and when the plan is gone,
/// also where it was the only transfer, or one that did not start.
TEST(TransferFailure, receivedLate) {
  for (bool start : {true, false}) {
    Lonely lonely, other;
    LonelyRank undisturbed(A, other, 1);
    ASSERT_OK(undisturbed.rank.step());
    lonely.records = true;
    {
      LonelyRank lonelyRank(A, lonely, 1);
      EntryRank &rank = lonelyRank.rank;
      for (int attempt = 0; attempt < 3; ++attempt) {
        lonely.starts = lonely.finishes = 0;
        (start ? lonely.failStart : lonely.failFinish) = 0;
        EXPECT_STATUS(STEPC_COMMUNICATION_ERROR,
                      attempt % 2 ? rank.stepByEvents(1, 1) : rank.step());
        ASSERT_OK(rank.setGrad(0, true));
        for (auto own : lonely.received) {
          EXPECT_EQ(0, std::count(lonely.late.begin(), lonely.late.end(), own));
          lonely.late.push_back(own);
        }
        lonely.received.clear();
      }
      lonely.failStart = lonely.failFinish = -1;
      rank.grads[0].fill(3);
      EXPECT_STATUS(STEPC_OK, rank.step());
      EXPECT_EQ(3u, lonely.late.size());
      EXPECT_EQ(undisturbed.rank.params[0].bits(), rank.params[0].bits());
    }
    for (auto [memory, bytes] : lonely.late)
      std::memset(memory, 0x42, bytes);
  }
}

/// Tensors that were named before the failure can be named in the next step.
TEST(TransferFailure, namedBefore) {
  PackagePtr package = loadToyWithoutParts();
  Lonely lonely;
  StepcCommunicator communicator = lonely.get();
  EntrySpec plain;
  plain.shape = {9};
  EntryRank rank(package.get(), {makeEntry({8, 6}, A, A), plain},
                 {{"dp", 2, 0}}, &communicator, makeConfig(1), 1);
  for (Array &grad : rank.grads)
    grad.fill(3);
  ASSERT_OK(rank.bind(0, 2));
  StepcPlan *plan = rank.plan.get();
  int64_t ids[] = {0, 1};
  lonely.failStart = 0;
  for (StepcStatus expected : {STEPC_COMMUNICATION_ERROR, STEPC_OK}) {
    ASSERT_OK(stepcStepBegin(plan));
    ASSERT_OK(stepcGradReady(plan, ids + 1, 1));
    EXPECT_STATUS(expected, stepcGradReady(plan, ids, 1));
  }
  ASSERT_OK(stepcStepEnd(plan));
  int64_t count = -1;
  ASSERT_OK(stepcPlanGetCount(plan, 1, &count));
  EXPECT_EQ(1, count);
}

/// A plan that is destroyed within a step waits for what it has started.
TEST(TransferFailure, destroyed) {
  Lonely lonely;
  {
    LonelyRank lonelyRank(A, lonely);
    StepcPlan *plan = lonelyRank.rank.plan.get();
    ASSERT_OK(stepcStepBegin(plan));
    for (int64_t id : {0, 1})
      ASSERT_OK(stepcGradReady(plan, &id, 1));
    EXPECT_EQ(2, lonely.starts);
    EXPECT_EQ(0, lonely.finishes);
  }
  EXPECT_EQ(2, lonely.finishes);
}

/// Where ranks have all of the gradient nothing crosses before the step.
TEST(TransferFailure, gather) {
  Lonely lonely;
  LonelyRank lonelyRank(0, lonely);
  lonely.failFinish = 0;
  EXPECT_STATUS(STEPC_COMMUNICATION_ERROR, lonelyRank.rank.step());
  EXPECT_EQ("parameters of tensor 0: as asked", lonelyRank.rank.message);
  EXPECT_STATUS(STEPC_POISONED, lonelyRank.rank.step());
}

/// A rank that does not step is named by the others.
TEST(TransferFailure, missingRank) {
  EntryWorld world(getToyTransfers(), {3}, makeFour(A));
  world.bindAll();
  ASSERT_OK(stepcSimulatedWorldSetDeadline(world.world, 50));
  world.forEachRank([](EntryRank &rank) {
    if (rank.getPlace(A) == 1)
      return;
    std::string before = getBits(rank);
    EXPECT_EQ(STEPC_COMMUNICATION_ERROR, rank.step());
    for (const char *part :
         {"gradients of tensor 0 and 3 more: transfer over axes [0] of rank ",
          ": not started by rank 1 within 50 ms; nothing was written, "
          "parameters and states are as before"})
      EXPECT_NE(std::string::npos, rank.message.find(part)) << rank.message;
    EXPECT_EQ(before, getBits(rank));
  });
}

/// Ranks that have bound other tensors.
TEST(TransferFailure, otherTensors) {
  EntryWorld world(getToyTransfers(), {2}, makeFour(A));
  ASSERT_OK(world.ranks[0].bind(0, 4));
  ASSERT_OK(world.ranks[1].bind(0, 3));
  world.forEachRank([](EntryRank &rank) {
    EXPECT_EQ(STEPC_COMMUNICATION_ERROR, rank.step());
    EXPECT_NE(std::string::npos, rank.message.find(" bytes for rank "))
        << rank.message;
  });
}

/// No step allocates, but what the communicator does: of whole steps and of
/// those as gradients come.
TEST(TransferFailure, stepsAllocateNothing) {
  Lonely lonely;
  LonelyRank lonelyRank(A, lonely);
  EntryRank &rank = lonelyRank.rank;
  StepcPlan *plan = rank.plan.get();
  ASSERT_OK(stepcStep(plan));
  int64_t before = countAllocations();
  bool good = true;
  for (int step = 0; step < 10; ++step) {
    for (size_t i = 0; i < 4; ++i)
      good &= stepcPlanSetGrad(plan, int64_t(i),
                               (size_t(step) + i) % 3 ? rank.grads[i].dl()
                                                      : nullptr) == STEPC_OK;
    if (step % 2) {
      good &= stepcStep(plan) == STEPC_OK;
      continue;
    }
    good &= stepcStepBegin(plan) == STEPC_OK;
    for (int64_t i = 3; i >= 0; --i)
      if ((step + i) % 3)
        good &= stepcGradReady(plan, &i, 1) == STEPC_OK;
    good &= stepcStepEnd(plan) == STEPC_OK;
  }
  EXPECT_EQ(0, countAllocations() - before);
  EXPECT_TRUE(good) << stepcLastErrorMessage();
}

/// Each allocation of a bind fails once: it is refused, nothing has changed,
/// and the next attempt succeeds.
TEST(TransferFailure, bindWithoutMemory) {
  int64_t refused = 0;
  for (int64_t n = 0; n < 150; ++n) {
    EntryWorld world(getToyTransfers(), {2}, makeFour(A), {}, 600, 600);
    world.bind(0, 2);
    EntryRank &rank = world.ranks[0];
    // What the test itself takes is there by then.
    StepcStatus status =
        rank.bind(2, 4, [&](auto &, auto &, auto &) { failAllocation(n); });
    failAllocation(-1);
    if (status != STEPC_OK) {
      ++refused;
      ASSERT_EQ(STEPC_OUT_OF_MEMORY, status) << stepcLastErrorMessage();
      ASSERT_EQ(2, getInfo(rank.plan.get()).numTensors);
      ASSERT_OK(rank.bind(2, 4));
    }
    ASSERT_OK(world.ranks[1].bind(2, 4));
    world.forEachRank([](EntryRank &each) {
      EXPECT_EQ(STEPC_OK, each.step()) << each.message;
    });
    EXPECT_EQ(getBits(world.ranks[0]), getBits(world.ranks[1]));
  }
  EXPECT_GT(refused, 60);
}

} // namespace
