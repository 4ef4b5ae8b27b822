//===- MeshMemoryTest.cpp - memory of plans on a mesh -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Interpose.h"
#include "support/ShardModel.h"

#include <thread>

using namespace stepc_test;

namespace {

/// A rank of two whose partner has nothing: its sums come back as they are.
class HalfWorld {
public:
  HalfWorld() {
    StepcAxis axis = {"x", 2, 0};
    StepcCommunicator communicator = {};
    communicator.structSize = sizeof(communicator);
    communicator.context = this;
    communicator.reduce = reduce;
    EXPECT_EQ(STEPC_OK,
              stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    EXPECT_EQ(STEPC_OK, stepcPlanSetMesh(plan.get(), &axis, 1, &communicator));
    for (int64_t rows = 1; rows <= 12; ++rows) {
      params.emplace_back(Type::F32, std::vector<int64_t>{30 * rows, 1000});
      grads.emplace_back(Type::F32, std::vector<int64_t>{30 * rows, 1000});
      grads.back().fill(uint32_t(rows));
    }
  }
  StepcStatus bind(size_t i) {
    int64_t shape[] = {2 * params[i].shape[0], 1000};
    uint64_t dimAxes[] = {1, 0};
    StepcLayout layout = {sizeof(layout), 2, 0, shape, dimAxes, 0, 0, 0,
                          nullptr};
    StepcBinding binding = makeBinding("w", params[i].dl(), grads[i].dl());
    binding.layout = &layout;
    return stepcPlanBind(plan.get(), &binding, 1, nullptr);
  }

  PlanPtr plan = makePlan(getShare(), makeConfig(3));
  std::vector<Array> params, grads;
  std::thread::id caller = std::this_thread::get_id();
  int64_t elsewhere = 0;

private:
  static int32_t reduce(void *context, const StepcReduceCall *, int64_t, char *,
                        size_t) {
    auto *self = static_cast<HalfWorld *>(context);
    self->elsewhere += std::this_thread::get_id() != self->caller;
    return 0;
  }
};

TEST(Mesh, stepsAllocateNothing) {
  HalfWorld half;
  for (size_t i = 0; i < half.params.size(); ++i)
    ASSERT_OK(half.bind(i));
  ASSERT_OK(stepcStep(half.plan.get()));
  int64_t before = countAllocations(), regions = countRegions();
  bool good = true;
  for (int64_t step = 0; step < 10; ++step) {
    good &= stepcPlanSetGrad(half.plan.get(), step, nullptr) == STEPC_OK;
    good &= stepcStep(half.plan.get()) == STEPC_OK;
  }
  EXPECT_EQ(0, countAllocations() - before);
  EXPECT_EQ(10, countRegions() - regions);
  EXPECT_TRUE(good);
  EXPECT_EQ(22, getInfo(half.plan.get()).exchangeRounds);
  // Communicators may depend on the thread.
  EXPECT_EQ(0, half.elsewhere);
}

/// Each allocation of a bind fails once; what is bound steps as before.
TEST(Mesh, bindWithoutMemory) {
  HalfWorld half, other;
  for (size_t i : {0, 1}) {
    ASSERT_OK(half.bind(i));
    ASSERT_OK(other.bind(i));
  }
  int refused = 0;
  for (int64_t n = 0;; ++n) {
    failAllocation(n);
    StepcStatus status = half.bind(2);
    failAllocation(-1);
    if (status == STEPC_OK)
      break;
    ++refused;
    ASSERT_EQ(STEPC_OUT_OF_MEMORY, status);
    EXPECT_EQ(2, getInfo(half.plan.get()).numTensors);
    ASSERT_OK(stepcStep(half.plan.get()));
    ASSERT_OK(stepcStep(other.plan.get()));
    for (size_t i : {0, 1})
      ASSERT_TRUE(half.params[i].bits() == other.params[i].bits()) << n;
  }
  EXPECT_GT(refused, 10);
  ASSERT_OK(other.bind(2));
  ASSERT_OK(stepcStep(half.plan.get()));
  ASSERT_OK(stepcStep(other.plan.get()));
  for (size_t i : {0, 1, 2})
    EXPECT_TRUE(half.params[i].bits() == other.params[i].bits());
}

} // namespace
