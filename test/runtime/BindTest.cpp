//===- BindTest.cpp - binding, what it refuses, and states ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

using namespace stepc_test;

namespace {

/// A plan with one group, and one good binding to spoil.
class BindTest : public testing::Test {
protected:
  void SetUp() override {
    plan = makePlan(getToy());
    ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    param.fill(1);
    grad.fill(2);
    paramBits = param.bits();
    binding = makeBinding("w", param.dl(), grad.dl());
  }

  /// Refused, and nothing changed.
  void refuse(StepcStatus status, const char *message) {
    int64_t id = -5;
    EXPECT_REFUSED(status, message,
                   stepcPlanBind(plan.get(), &binding, 1, &id));
    EXPECT_EQ(-5, id);
    EXPECT_EQ(0, getInfo(plan.get()).numTensors);
    EXPECT_EQ(paramBits, param.bits());
  }
  StepcStatus bind() { return stepcPlanBind(plan.get(), &binding, 1, nullptr); }

  PlanPtr plan;
  Array param{Type::F32, {2, 3}};
  Array grad{Type::F32, {2, 3}};
  std::string paramBits;
  StepcBinding binding;
};

TEST_F(BindTest, fields) {
  StepcBinding good = binding;
  auto invalid = [&](auto change, const char *message) {
    binding = good;
    change(binding);
    refuse(STEPC_INVALID_ARGUMENT, message);
  };
  invalid([](auto &b) { b.structSize = 80; },
          "StepcBinding has struct size 80, the least is 88");
  invalid([](auto &b) { b.group = 1; },
          "tensor 'w': group 1 does not exist, the plan has 1");
  invalid([](auto &b) { b.param = nullptr; }, "tensor 'w' has no parameter");
  invalid([](auto &b) { b.count = -1; }, "tensor 'w': count -1 is negative");
  invalid([](auto &b) { b.count = INT64_MAX; },
          "tensor 'w': count 9223372036854775807 is above "
          "9223372036854775806");
  invalid([](auto &b) { b.fresh = 2; },
          "tensor 'w': fresh is 2, neither 0 nor 1");
  invalid([](auto &b) { b.reserved0 = 4; },
          "tensor 'w': a reserved field is 4, not 0");
  invalid([](auto &b) { b.numStates = 1; },
          "tensor 'w' has 1 states without a list");
  const DLTensor *none[] = {nullptr, nullptr};
  invalid(
      [&](auto &b) {
        b.numStates = 2;
        b.states = none;
      },
      "tensor 'w': state 0 is missing");
  uint8_t created[] = {1, 2};
  const DLTensor *twice[] = {binding.param, binding.param};
  invalid(
      [&](auto &b) {
        b.numStates = 2;
        b.states = twice;
        b.freshStates = created;
      },
      "tensor 'w': freshStates of state 1 is 2, neither 0 nor 1");
  invalid([](auto &b) { b.name = nullptr, b.param = nullptr; },
          "tensor 0 has no parameter");
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "3 bindings were given, without values",
                 stepcPlanBind(plan.get(), nullptr, 3, nullptr));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "-1 bindings were given, without values",
                 stepcPlanBind(plan.get(), &binding, -1, nullptr));
  ASSERT_OK(stepcPlanBind(plan.get(), nullptr, 0, nullptr));
}

TEST_F(BindTest, devices) {
  param.dl()->device = {kDLCUDA, 0};
  refuse(STEPC_DEVICE_MISMATCH,
         "tensor 'w': parameter is on CUDA device 0, the plan runs on the cpu");
  param.dl()->device = {kDLCPU, 0};
  grad.dl()->device = {kDLCUDA, 1};
  refuse(STEPC_DEVICE_MISMATCH,
         "tensor 'w': gradient is on CUDA device 1, the plan runs on the cpu");
}

TEST_F(BindTest, dtypes) {
  param.dl()->dtype = {kDLComplex, 64, 1};
  refuse(STEPC_DTYPE_MISMATCH,
         "tensor 'w': parameter has dtype complex64, known are f32, f64, "
         "bf16 and f16");
  param.dl()->dtype = {kDLInt, 32, 1};
  refuse(
      STEPC_DTYPE_MISMATCH,
      "tensor 'w': parameter has dtype i32, known are f32, f64, bf16 and f16");
  param.dl()->dtype = {kDLFloat, 8, 1};
  refuse(
      STEPC_DTYPE_MISMATCH,
      "tensor 'w': parameter has dtype f8, known are f32, f64, bf16 and f16");
  param.dl()->dtype = {kDLFloat, 32, 4};
  refuse(STEPC_DTYPE_MISMATCH, "tensor 'w': parameter has dtype f32x4, known "
                               "are f32, f64, bf16 and f16");
  param.dl()->dtype = getDLType(Type::F32);
  grad.dl()->dtype = {kDLBool, 8, 1};
  refuse(
      STEPC_DTYPE_MISMATCH,
      "tensor 'w': gradient has dtype bool8, known are f32, f64, bf16 and f16");
  grad.dl()->dtype = getDLType(Type::F64);
  refuse(STEPC_DTYPE_MISMATCH,
         "tensor 'w': the package has no variant for param f32, grad f64, it "
         "has: param f32, grad f32, state f32, state f32; param f64, grad f64, "
         "state f64, state f64; param bf16, grad bf16, state f32, state f32");
  binding.grad = nullptr;
  binding.gradDtype = {kDLInt, 8, 1};
  refuse(STEPC_DTYPE_MISMATCH,
         "tensor 'w': gradient has dtype i8, known are f32, f64, bf16 and f16");
}

TEST_F(BindTest, shapes) {
  Array other(Type::F32, {3, 2}), flat(Type::F32, {6});
  binding.grad = other.dl();
  refuse(STEPC_SHAPE_MISMATCH, "tensor 'w': gradient has shape [3, 2], the "
                               "bound parameter has [2, 3]");
  binding.grad = flat.dl();
  refuse(STEPC_SHAPE_MISMATCH,
         "tensor 'w': gradient has shape [6], the bound parameter has [2, 3]");
  binding.grad = grad.dl();
  const DLTensor *states[] = {grad.dl(), flat.dl()};
  binding.states = states;
  binding.numStates = 2;
  refuse(STEPC_SHAPE_MISMATCH, "tensor 'w': state 'momentum_buffer' has shape "
                               "[6], the bound parameter has [2, 3]");
  binding.numStates = 1;
  refuse(STEPC_INVALID_ARGUMENT,
         "tensor 'w' has 1 states, variant 'toy_f32_momentum' has 2");
}

TEST_F(BindTest, stateDtypes) {
  Array a(Type::F32, {2, 3}), b(Type::F64, {2, 3});
  const DLTensor *states[] = {a.dl(), b.dl()};
  binding.states = states;
  binding.numStates = 2;
  refuse(STEPC_DTYPE_MISMATCH,
         "tensor 'w': the package has no variant for param f32, grad f32, "
         "state f32, state f64, it has: param f32, grad f32, state f32, state "
         "f32; param f64, grad f64, state f64, state f64; param bf16, grad "
         "bf16, state f32, state f32");
}

TEST_F(BindTest, impossibleShapes) {
  param.dl()->ndim = -1;
  refuse(STEPC_INVALID_ARGUMENT,
         "tensor 'w': parameter has rank -1 and a shape");
  param.dl()->ndim = 2;
  param.dl()->shape = nullptr;
  refuse(STEPC_INVALID_ARGUMENT,
         "tensor 'w': parameter has rank 2 and no shape");
  std::vector<int64_t> negative = {2, -3}, huge = {int64_t(1) << 40, 1 << 30},
                       hugeEmpty = {0, int64_t(1) << 40, 1 << 30};
  param.dl()->shape = negative.data();
  refuse(STEPC_SHAPE_MISMATCH,
         "tensor 'w': parameter has the impossible shape [2, -3]");
  param.dl()->shape = huge.data();
  refuse(STEPC_SHAPE_MISMATCH,
         "tensor 'w': parameter has the impossible shape [1099511627776, "
         "1073741824]");
  param.dl()->ndim = 3;
  param.dl()->shape = hugeEmpty.data();
  refuse(STEPC_SHAPE_MISMATCH,
         "tensor 'w': parameter has the impossible shape [0, 1099511627776, "
         "1073741824]");
}

TEST_F(BindTest, memory) {
  void *data = param.dl()->data;
  param.dl()->data = nullptr;
  refuse(STEPC_INVALID_ARGUMENT, "tensor 'w': parameter has no memory");
  param.dl()->data = reinterpret_cast<void *>(uintptr_t(0x1002));
  refuse(STEPC_LAYOUT_UNSUPPORTED,
         "tensor 'w': parameter is at address 0x1002, which is no multiple of "
         "its element size 4");
  param.dl()->data = data;
  param.dl()->byte_offset = 4;
  ASSERT_OK(bind());
  DLTensor state;
  ASSERT_OK(stepcPlanGetState(plan.get(), 0, "second", &state));
  ASSERT_OK(stepcStep(plan.get()));
  // The first element was not bound.
  EXPECT_EQ(paramBits.substr(0, 4), param.bits().substr(0, 4));
  EXPECT_NE(paramBits.substr(4, 4), param.bits().substr(4, 4));
  param.dl()->byte_offset = 0;
}

TEST_F(BindTest, stridesOutOfTheAddressSpace) {
  std::vector<int64_t> strides = {INT64_MAX / 2, 1};
  param.dl()->strides = strides.data();
  refuse(STEPC_LAYOUT_UNSUPPORTED,
         "tensor 'w': parameter has strides [4611686018427387903, 1], which "
         "lead out of the address space");
  strides = {-(int64_t(1) << 50), 1};
  refuse(STEPC_LAYOUT_UNSUPPORTED,
         "tensor 'w': parameter has strides [-1125899906842624, 1], which lead "
         "out of the address space");
}

TEST_F(BindTest, writtenTensorsThatOverlapThemselves) {
  std::vector<int64_t> strides = {0, 1};
  param.dl()->strides = strides.data();
  refuse(STEPC_LAYOUT_UNSUPPORTED,
         "tensor 'w': parameter is written, but shape [2, 3] with strides [0, "
         "1] keeps several elements in one place");
  strides = {2, 1};
  refuse(STEPC_LAYOUT_UNSUPPORTED,
         "tensor 'w': parameter is written, but shape [2, 3] with strides [2, "
         "1] keeps several elements in one place");
  // Not row by row, and still each element for itself: 0 2 4, 3 5 7.
  strides = {3, 2};
  ASSERT_OK(bind());
}

/// The first of two bindings is good; both are refused.
TEST_F(BindTest, allOrNothing) {
  Array other(Type::F32, {4}), otherGrad(Type::F32, {5});
  StepcBinding both[] = {binding, makeBinding("v", other.dl(), otherGrad.dl())};
  int64_t ids[] = {-5, -5};
  EXPECT_STATUS(STEPC_SHAPE_MISMATCH, stepcPlanBind(plan.get(), both, 2, ids));
  EXPECT_EQ(-5, ids[0]);
  EXPECT_EQ(0, getInfo(plan.get()).numTensors);
  ASSERT_OK(stepcPlanBind(plan.get(), both, 1, ids));
  EXPECT_EQ(0, ids[0]);
}

TEST_F(BindTest, statesOfTheRuntime) {
  ASSERT_OK(bind());
  DLTensor state;
  ASSERT_OK(stepcPlanGetState(plan.get(), 0, "second", &state));
  EXPECT_EQ(2, state.ndim);
  EXPECT_EQ(2, state.shape[0]);
  EXPECT_EQ(3, state.shape[1]);
  EXPECT_EQ(3, state.strides[0]);
  EXPECT_EQ(1, state.strides[1]);
  EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(state.data) % 64);
  EXPECT_EQ(std::vector<double>(6, 0.5), readState(plan.get(), 0, "second"));
  EXPECT_EQ(std::vector<double>(6, 0.0),
            readState(plan.get(), 0, "momentum_buffer"));
  EXPECT_REFUSED(STEPC_UNKNOWN_NAME,
                 "tensor 'w' has no state 'exp_avg', it has: second, "
                 "momentum_buffer",
                 stepcPlanGetState(plan.get(), 0, "exp_avg", &state));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "tensor 'w': a state without a name",
                 stepcPlanGetState(plan.get(), 0, nullptr, &state));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 1 does not exist, the plan has 1",
                 stepcPlanGetState(plan.get(), 1, "second", &state));
}

/// States follow the parameter's order in memory, so that its row is
/// contiguous; a parameter with gaps does not hand on the gaps.
TEST_F(BindTest, statesFollowTheParameter) {
  Array column(Type::F32, {2, 3}, Layout::ColumnMajor),
      padded(Type::F32, {2, 3}, Layout::Padded);
  StepcBinding bindings[] = {makeBinding("c", column.dl(), column.dl()),
                             makeBinding("p", padded.dl(), padded.dl())};
  for (StepcBinding &b : bindings) {
    b.grad = nullptr;
    b.gradDtype = getDLType(Type::F32);
  }
  ASSERT_OK(stepcPlanBind(plan.get(), bindings, 2, nullptr));
  DLTensor state;
  ASSERT_OK(stepcPlanGetState(plan.get(), 0, "second", &state));
  EXPECT_EQ(1, state.strides[0]);
  EXPECT_EQ(2, state.strides[1]);
  ASSERT_OK(stepcPlanGetState(plan.get(), 1, "second", &state));
  EXPECT_EQ(3, state.strides[0]);
  EXPECT_EQ(1, state.strides[1]);
}

/// States above the threshold for huge pages.
TEST_F(BindTest, largeStates) {
  StepcPlanConfig config = {};
  config.hugePages = 1;
  plan = makePlan(getToy(), config);
  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  Array large(Type::F32, {1 << 20, 2}), largeGrad(Type::F32, {1 << 20, 2});
  large.fill(3);
  std::string before = large.bits();
  StepcBinding b = makeBinding("large", large.dl(), largeGrad.dl());
  ASSERT_OK(stepcPlanBind(plan.get(), &b, 1, nullptr));
  EXPECT_EQ(before, large.bits());
  EXPECT_EQ(std::vector<double>(2 << 20, 0.5),
            readState(plan.get(), 0, "second"));
  EXPECT_EQ(std::vector<double>(2 << 20, 0.0),
            readState(plan.get(), 0, "momentum_buffer"));
  EXPECT_GT(getInfo(plan.get()).bytesAllocated, 16 << 20);
}

TEST_F(BindTest, counts) {
  int64_t count = -1;
  float mirror = -1.0f;
  binding.count = 41;
  binding.countMirror = &mirror;
  ASSERT_OK(bind());
  ASSERT_OK(stepcPlanGetCount(plan.get(), 0, &count));
  EXPECT_EQ(41, count);
  EXPECT_EQ(-1.0f, mirror);
  ASSERT_OK(stepcStep(plan.get()));
  ASSERT_OK(stepcPlanGetCount(plan.get(), 0, &count));
  EXPECT_EQ(42, count);
  EXPECT_EQ(42.0f, mirror);
  ASSERT_OK(stepcPlanSetCount(plan.get(), 0, 7));
  ASSERT_OK(stepcStep(plan.get()));
  ASSERT_OK(stepcPlanGetCount(plan.get(), 0, &count));
  EXPECT_EQ(8, count);
  EXPECT_EQ(8.0f, mirror);
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "tensor 'w': count -2 is negative",
                 stepcPlanSetCount(plan.get(), 0, -2));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 'w': count 9223372036854775807 is above "
                 "9223372036854775806",
                 stepcPlanSetCount(plan.get(), 0, INT64_MAX));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 3 does not exist, the plan has 1",
                 stepcPlanSetCount(plan.get(), 3, 1));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor -1 does not exist, the plan has 1",
                 stepcPlanGetCount(plan.get(), -1, &count));
}

} // namespace
