//===- RebindTest.cpp - gradients and parameters that move ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

#include <functional>

using namespace stepc_test;

namespace {

/// A plan of one bound tensor, which then moves.
class RebindTest : public testing::Test {
protected:
  void SetUp() override {
    param.fill(1);
    grad.fill(2);
    plan = bindNew(param, grad);
  }

  static PlanPtr bindNew(Array &param, Array &grad) {
    PlanPtr made = makePlan(getToy());
    EXPECT_STATUS(STEPC_OK, stepcPlanAddGroup(made.get(), nullptr, 0, nullptr,
                                              0, nullptr));
    StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
    EXPECT_STATUS(STEPC_OK, stepcPlanBind(made.get(), &binding, 1, nullptr));
    return made;
  }

  /// Of a parameter of ones after `steps` of a plan that moves nothing.
  static std::string getBitsAfter(int steps, Array &grad) {
    Array stays(Type::F32, {2, 3});
    stays.fill(1);
    PlanPtr other = bindNew(stays, grad);
    for (int i = 0; i < steps; ++i)
      EXPECT_STATUS(STEPC_OK, stepcStep(other.get()));
    return stays.bits();
  }

  void forOtherLooks(const std::function<void(const DLTensor *)> &check);

  PlanPtr plan;
  Array param{Type::F32, {2, 3}};
  Array grad{Type::F32, {2, 3}};
};

TEST_F(RebindTest, setGradRefusals) {
  auto refuseGrad = [&](StepcStatus status, const char *message,
                        const DLTensor *tensor, int64_t id = 0) {
    EXPECT_REFUSED(status, message, stepcPlanSetGrad(plan.get(), id, tensor));
  };
  Array wide(Type::F64, {2, 3}), other(Type::F32, {3, 2});
  refuseGrad(STEPC_INVALID_ARGUMENT, "tensor 5 does not exist, the plan has 1",
             grad.dl(), 5);
  refuseGrad(STEPC_INVALID_ARGUMENT, "tensor 5 does not exist, the plan has 1",
             nullptr, 5);
  refuseGrad(STEPC_NEEDS_BIND,
             "tensor 'w': gradient has dtype f64, it was bound with f32",
             wide.dl());
  refuseGrad(STEPC_SHAPE_MISMATCH,
             "tensor 'w': gradient has shape [3, 2], the "
             "bound parameter has [2, 3]",
             other.dl());
  refuseGrad(STEPC_OVERLAP,
             "tensor 'w': gradient and tensor 'w': parameter share memory",
             param.dl());
  DLTensor copy = *grad.dl();
  copy.data = nullptr;
  refuseGrad(STEPC_INVALID_ARGUMENT, "tensor 'w': gradient has no memory",
             &copy);
  copy = *grad.dl();
  copy.data = static_cast<char *>(copy.data) + 2;
  EXPECT_STATUS(STEPC_LAYOUT_UNSUPPORTED,
                stepcPlanSetGrad(plan.get(), 0, &copy));
  copy = *grad.dl();
  copy.device.device_type = kDLCUDA;
  EXPECT_STATUS(STEPC_DEVICE_MISMATCH, stepcPlanSetGrad(plan.get(), 0, &copy));
  copy = *grad.dl();
  copy.shape = nullptr;
  refuseGrad(STEPC_INVALID_ARGUMENT,
             "tensor 'w': gradient has rank 2 and no shape", &copy);
  copy.ndim = -1;
  refuseGrad(STEPC_INVALID_ARGUMENT,
             "tensor 'w': gradient has rank -1 and no shape", &copy);
  // After all that, the gradient that was bound is the one that is used.
  std::string expected = getBitsAfter(1, grad);
  ASSERT_OK(stepcStep(plan.get()));
  EXPECT_EQ(expected, param.bits());
}

/// Calls `check` with tensors at the parameter's address that are others.
void RebindTest::forOtherLooks(
    const std::function<void(const DLTensor *)> &check) {
  Array wide(Type::F64, {2, 3}), flat(Type::F32, {6}),
      longer(Type::F32, {2, 4}), turned(Type::F32, {2, 3}, Layout::ColumnMajor);
  for (Array *other : {&wide, &flat, &longer, &turned}) {
    DLTensor looks = *other->dl();
    looks.data = param.dl()->data;
    looks.byte_offset = param.dl()->byte_offset;
    check(&looks);
  }
  DLTensor looks = *param.dl();
  looks.device.device_type = kDLCUDA;
  check(&looks);
}

TEST_F(RebindTest, moveGrad) {
  Array moved(Type::F32, {2, 3}), wide(Type::F64, {2, 3}),
      other(Type::F32, {3, 2}), elsewhere(Type::F32, {2, 3}),
      turned(Type::F32, {2, 3}, Layout::ColumnMajor);
  moved.fill(3);
  auto move = [&](const DLTensor *p, const DLTensor *g, int64_t id = 0) {
    return stepcPlanMoveGrad(plan.get(), id, p, g);
  };
  EXPECT_EQ(1, move(param.dl(), moved.dl()));
  EXPECT_EQ(0, stepcPlanMoveGrad(nullptr, 0, param.dl(), grad.dl()));
  EXPECT_EQ(0, move(nullptr, grad.dl()));
  EXPECT_EQ(0, move(param.dl(), nullptr));
  EXPECT_EQ(0, move(param.dl(), grad.dl(), 1));
  EXPECT_EQ(0, move(param.dl(), grad.dl(), -1));
  for (Array *wrong : {&wide, &other, &turned, &param})
    EXPECT_EQ(0, move(param.dl(), wrong->dl()));
  for (Array *wrong : {&wide, &other, &turned, &elsewhere})
    EXPECT_EQ(0, move(wrong->dl(), grad.dl()));
  DLTensor copy = *grad.dl();
  copy.data = nullptr;
  EXPECT_EQ(0, move(param.dl(), &copy));
  copy = *grad.dl();
  copy.device.device_type = kDLCUDA;
  EXPECT_EQ(0, move(param.dl(), &copy));
  forOtherLooks(
      [&](const DLTensor *looks) { EXPECT_EQ(0, move(looks, grad.dl())); });

  // After all that, the gradient that was moved to is the one that is used.
  std::string expected = getBitsAfter(1, moved);
  ASSERT_OK(stepcStep(plan.get()));
  EXPECT_EQ(expected, param.bits());

  // A tensor without a gradient gets one from SetGrad alone.
  ASSERT_OK(stepcPlanSetGrad(plan.get(), 0, nullptr));
  EXPECT_EQ(0, move(param.dl(), moved.dl()));
  ASSERT_OK(stepcStep(plan.get()));
  EXPECT_EQ(expected, param.bits());
}

TEST_F(RebindTest, setParam) {
  Array wide(Type::F64, {2, 3}), other(Type::F32, {3, 2}),
      moved(Type::F32, {2, 3}, Layout::ColumnMajor);
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "tensor 'w': no parameter",
                 stepcPlanSetParam(plan.get(), 0, nullptr));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 1 does not exist, the plan has 1",
                 stepcPlanSetParam(plan.get(), 1, param.dl()));
  EXPECT_REFUSED(STEPC_NEEDS_BIND,
                 "tensor 'w': parameter has dtype f64, it was bound with f32",
                 stepcPlanSetParam(plan.get(), 0, wide.dl()));
  EXPECT_REFUSED(STEPC_SHAPE_MISMATCH,
                 "tensor 'w': parameter has shape [3, 2], the bound parameter "
                 "has [2, 3]",
                 stepcPlanSetParam(plan.get(), 0, other.dl()));
  std::vector<int64_t> strides = {0, 0};
  DLTensor expanded = *moved.dl();
  expanded.strides = strides.data();
  EXPECT_REFUSED(STEPC_LAYOUT_UNSUPPORTED,
                 "tensor 'w': parameter is written, but shape [2, 3] with "
                 "strides [0, 0] keeps several elements in one place",
                 stepcPlanSetParam(plan.get(), 0, &expanded));
  ASSERT_OK(stepcPlanSetParam(plan.get(), 0, param.dl()));
  int refused = 0;
  forOtherLooks([&](const DLTensor *looks) {
    refused += stepcPlanSetParam(plan.get(), 0, looks) != STEPC_OK;
  });
  EXPECT_EQ(4, refused); // all but the strides, which it takes
  ASSERT_OK(stepcPlanSetParam(plan.get(), 0, param.dl()));

  // Two steps, the parameter moving in between, in another order of memory.
  std::string expected = getBitsAfter(2, grad);
  ASSERT_OK(stepcStep(plan.get()));
  for (int64_t i = 0; i < 6; ++i)
    moved.set(i, param.get(i));
  std::string old = param.bits();
  ASSERT_OK(stepcPlanSetParam(plan.get(), 0, moved.dl()));
  ASSERT_OK(stepcStep(plan.get()));
  EXPECT_EQ(old, param.bits());
  EXPECT_EQ(expected, moved.bits());
}

} // namespace
