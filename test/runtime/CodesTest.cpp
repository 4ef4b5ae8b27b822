//===- CodesTest.cpp - states that are kept as codes ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

#include "stepc/codes.h"

#include <array>
#include <cstring>

using namespace stepc_test;

namespace {

constexpr int64_t kRows = 70, kColumns = 100;

/// Bytes of any shape.
struct Bytes {
  explicit Bytes(std::vector<int64_t> shape, DLDataType type = {kDLUInt, 8, 1})
      : shape(std::move(shape)) {
    int64_t size = type.bits / 8;
    for (int64_t extent : this->shape)
      size *= extent;
    memory.resize(size_t(size) + 64);
    tensor.data = memory.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = int32_t(this->shape.size());
    tensor.dtype = type;
    tensor.shape = this->shape.data();
  }

  std::vector<int64_t> shape;
  std::vector<char> memory;
  DLTensor tensor = {};
};

class CodesTest : public testing::Test {
protected:
  void SetUp() override {
    plan = makePlan(getToy());
    ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    param.fill(1);
    grad.fill(2);
    binding = makeBinding("w", param.dl(), grad.dl());
    binding.states = states.data();
    binding.numStates = 2;
    binding.formats = formats.data();
    binding.scales = scales.data();
  }
  StepcStatus bind() { return stepcPlanBind(plan.get(), &binding, 1, nullptr); }
  void refuse(StepcStatus status, const char *message) {
    EXPECT_REFUSED(status, message, bind());
    EXPECT_EQ(0, getInfo(plan.get()).numTensors);
  }

  PlanPtr plan;
  Array param{Type::F32, {kRows, kColumns}};
  Array grad{Type::F32, {kRows, kColumns}};
  Bytes second{{kRows, kColumns}}, buffer{{kRows, kColumns}};
  Bytes secondScales{{kRows, 2}, {kDLFloat, 32, 1}};
  Bytes bufferScales{{kRows, 2}, {kDLFloat, 32, 1}};
  std::array<const DLTensor *, 2> states{&second.tensor, &buffer.tensor};
  std::array<const DLTensor *, 2> scales{&secondScales.tensor,
                                         &bufferScales.tensor};
  std::array<int32_t, 2> formats{STEPC_STATE_Q8, STEPC_STATE_Q8};
  StepcBinding binding;
};

TEST_F(CodesTest, theRuntimeAllocatesThem) {
  binding.states = nullptr;
  ASSERT_OK(bind());
  DLTensor codes, of;
  ASSERT_OK(stepcPlanGetState(plan.get(), 0, "second", &codes));
  ASSERT_OK(stepcPlanGetStateScales(plan.get(), 0, "second", &of));
  EXPECT_EQ(8, codes.dtype.bits);
  EXPECT_EQ(kDLUInt, codes.dtype.code);
  ASSERT_EQ(2, of.ndim);
  EXPECT_EQ(kRows, of.shape[0]);
  EXPECT_EQ(2, of.shape[1]);
  // It begins as 0.5.
  const auto *bytes = static_cast<const uint8_t *>(codes.data);
  const auto *floats = static_cast<const float *>(of.data);
  EXPECT_EQ(255, bytes[0]);
  EXPECT_EQ(255, bytes[kRows * kColumns - 1]);
  EXPECT_EQ(0.5F, floats[2 * kRows - 1]);
  ASSERT_OK(stepcStep(plan.get()));
  std::vector<float> values(kRows * kColumns);
  int64_t shape[] = {kRows, kColumns};
  ASSERT_OK(
      stepcDecodeState(STEPC_STATE_Q8, shape, 2, bytes, floats, values.data()));
  std::vector<uint8_t> again(kRows * kColumns);
  std::vector<float> scalesAgain(2 * kRows);
  ASSERT_OK(stepcEncodeState(STEPC_STATE_Q8, shape, 2, values.data(),
                             again.data(), scalesAgain.data()));
  EXPECT_EQ(0, std::memcmp(bytes, again.data(), again.size()));
  EXPECT_EQ(0, std::memcmp(floats, scalesAgain.data(), 8 * kRows));
}

TEST_F(CodesTest, aFormatForEach) {
  binding.states = nullptr;
  formats[0] = STEPC_STATE_F8_E4M3;
  ASSERT_OK(bind());
  DLTensor codes, of, others;
  ASSERT_OK(stepcPlanGetState(plan.get(), 0, "second", &codes));
  ASSERT_OK(stepcPlanGetStateScales(plan.get(), 0, "second", &of));
  ASSERT_OK(stepcPlanGetState(plan.get(), 0, "momentum_buffer", &others));
  EXPECT_EQ(kDLInt, codes.dtype.code);
  EXPECT_EQ(8, codes.dtype.bits);
  EXPECT_EQ(kDLUInt, others.dtype.code);
  // It begins as 0.5, the largest of its block.
  const auto *bytes = static_cast<const uint8_t *>(codes.data);
  const auto *floats = static_cast<const float *>(of.data);
  EXPECT_EQ(0x7e, bytes[0]);
  std::vector<float> values(kRows * kColumns);
  int64_t shape[] = {kRows, kColumns};
  ASSERT_OK(stepcDecodeState(STEPC_STATE_F8_E4M3, shape, 2, bytes, floats,
                             values.data()));
  EXPECT_NEAR(0.5, values[0], 0x1p-21);
  ASSERT_OK(stepcStep(plan.get()));
  ASSERT_OK(stepcDecodeState(STEPC_STATE_F8_E4M3, shape, 2, bytes, floats,
                             values.data()));
  std::vector<uint8_t> again(kRows * kColumns);
  std::vector<float> scalesAgain(2 * kRows);
  ASSERT_OK(stepcEncodeState(STEPC_STATE_F8_E4M3, shape, 2, values.data(),
                             again.data(), scalesAgain.data()));
  EXPECT_EQ(0, std::memcmp(bytes, again.data(), again.size()));
  EXPECT_EQ(0, std::memcmp(floats, scalesAgain.data(), 8 * kRows));
}

TEST_F(CodesTest, severalInAnElement) {
  binding.states = nullptr;
  formats[0] = STEPC_STATE_Q4;
  ASSERT_OK(bind());
  DLTensor codes, of;
  ASSERT_OK(stepcPlanGetState(plan.get(), 0, "second", &codes));
  ASSERT_OK(stepcPlanGetStateScales(plan.get(), 0, "second", &of));
  EXPECT_EQ(kDLInt, codes.dtype.code);
  EXPECT_EQ(32, codes.dtype.bits);
  ASSERT_EQ(2, codes.ndim);
  EXPECT_EQ(kRows, codes.shape[0]);
  EXPECT_EQ(13, codes.shape[1]);
  EXPECT_EQ(13, codes.strides[0]);
  // It begins as 0.5; a row's last element has four codes.
  const auto *words = static_cast<const uint32_t *>(codes.data);
  const auto *floats = static_cast<const float *>(of.data);
  EXPECT_EQ(0xffffffffU, words[11]);
  EXPECT_EQ(0xffffU, words[12]);
  EXPECT_EQ(0xffffU, words[kRows * 13 - 1]);
  EXPECT_EQ(0.5F, floats[2 * kRows - 1]);
  ASSERT_OK(stepcStep(plan.get()));
  std::vector<float> values(kRows * kColumns), scalesAgain(2 * kRows);
  int64_t shape[] = {kRows, kColumns};
  ASSERT_OK(
      stepcDecodeState(STEPC_STATE_Q4, shape, 2, words, floats, values.data()));
  std::vector<uint32_t> again(kRows * 13);
  ASSERT_OK(stepcEncodeState(STEPC_STATE_Q4, shape, 2, values.data(),
                             again.data(), scalesAgain.data()));
  EXPECT_EQ(0, std::memcmp(words, again.data(), 4 * again.size()));
  EXPECT_EQ(0, std::memcmp(floats, scalesAgain.data(), 8 * kRows));
}

TEST_F(CodesTest, severalInAnElementOfTheCaller) {
  Bytes packed({kRows, 13}, {kDLInt, 32, 1});
  formats[0] = STEPC_STATE_Q4;
  refuse(STEPC_DTYPE_MISMATCH,
         "tensor 'w': state '0' has dtype u8, codes of format 3 are i32");
  second.tensor.dtype = {kDLInt, 32, 1};
  refuse(STEPC_SHAPE_MISMATCH, "tensor 'w': state 'second' has shape [70, "
                               "100], codes of format 3 are [70, 13]");
  states[0] = &packed.tensor;
  int64_t strides[] = {1, kRows};
  packed.tensor.strides = strides;
  refuse(STEPC_LAYOUT_UNSUPPORTED,
         "tensor 'w': state 'second' is kept as codes and has strides [1, 70], "
         "they must be row-major without gaps");
  packed.tensor.strides = nullptr;
  secondScales.tensor.data = packed.memory.data() + size_t(kRows * 13 * 4 - 4);
  refuse(STEPC_OVERLAP,
         "tensor 'w': scales of state 'second' and tensor 'w': state 'second' "
         "share memory");
  // The first byte behind them is not theirs.
  secondScales.tensor.data = secondScales.memory.data();
  std::vector<char> both(size_t(kRows * 13 * 4) + 4 * kRows * kColumns + 4);
  packed.tensor.data = both.data();
  Bytes gradient({kRows, kColumns}, {kDLFloat, 32, 1});
  gradient.tensor.data = both.data() + kRows * 13 * 4;
  binding.grad = &gradient.tensor;
  ASSERT_OK(bind());
  ASSERT_OK(stepcStep(plan.get()));
  gradient.tensor.data = both.data() + kRows * 13 * 4 - 4;
  EXPECT_REFUSED(
      STEPC_OVERLAP,
      "tensor 'w': gradient and tensor 'w': state 'second' share memory",
      stepcPlanSetGrad(plan.get(), 0, &gradient.tensor));
}

TEST_F(CodesTest, oneOfThem) {
  Array plain(Type::F32, {kRows, kColumns});
  states[1] = plain.dl();
  scales[1] = nullptr;
  formats[1] = STEPC_STATE_PLAIN;
  ASSERT_OK(bind());
  DLTensor out;
  EXPECT_REFUSED(
      STEPC_WRONG_STATE,
      "tensor 'w': state 'momentum_buffer' is not kept as codes",
      stepcPlanGetStateScales(plan.get(), 0, "momentum_buffer", &out));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "out is NULL",
                 stepcPlanGetStateScales(plan.get(), 0, "second", nullptr));
}

TEST_F(CodesTest, formatsThatCannotBe) {
  formats[0] = 7;
  refuse(STEPC_INVALID_ARGUMENT,
         "tensor 'w': state '0' has format 7, those of codes are 1 to 3");
  formats[0] = STEPC_STATE_Q8;
  binding.states = nullptr;
  binding.numStates = 1;
  refuse(STEPC_INVALID_ARGUMENT, "tensor 'w' has formats of 1 states, variant "
                                 "'toy_f32_momentum' has 2");
  binding.numStates = 2;
  formats[0] = 7;
  refuse(STEPC_INVALID_ARGUMENT,
         "tensor 'w': state 'second' has format 7, those of codes are 1 to 3");
}

TEST_F(CodesTest, codesThatCannotBe) {
  second.tensor.dtype = {kDLInt, 8, 1};
  refuse(STEPC_DTYPE_MISMATCH,
         "tensor 'w': state '0' has dtype i8, codes of format 1 are u8");
  formats[0] = STEPC_STATE_F8_E4M3;
  second.tensor.dtype = {kDLUInt, 8, 1};
  refuse(STEPC_DTYPE_MISMATCH,
         "tensor 'w': state '0' has dtype u8, codes of format 2 are i8");
  formats[0] = STEPC_STATE_Q8;
  second.tensor.device = {kDLCUDA, 0};
  refuse(STEPC_DEVICE_MISMATCH,
         "tensor 'w': state '0' is on CUDA device 0, the plan runs on the cpu");
  second.tensor.device = {kDLCPU, 0};
  second.shape[0] = kRows - 1;
  refuse(STEPC_SHAPE_MISMATCH, "tensor 'w': state 'second' has shape [69, "
                               "100], the bound parameter has [70, 100]");
  second.shape[0] = kRows;
  int64_t strides[] = {1, kRows};
  second.tensor.strides = strides;
  refuse(STEPC_LAYOUT_UNSUPPORTED,
         "tensor 'w': state 'second' is kept as codes and has strides [1, 70], "
         "they must be row-major without gaps");
}

TEST_F(CodesTest, scalesThatCannotBe) {
  scales[1] = nullptr;
  refuse(STEPC_INVALID_ARGUMENT, "tensor 'w': state 'momentum_buffer' is kept "
                                 "as codes, without scales");
  binding.scales = nullptr;
  refuse(STEPC_INVALID_ARGUMENT,
         "tensor 'w': state 'second' is kept as codes, without scales");
  binding.scales = scales.data();
  scales[1] = &bufferScales.tensor;
  bufferScales.tensor.dtype = {kDLFloat, 64, 1};
  refuse(STEPC_DTYPE_MISMATCH, "tensor 'w': scales of state 'momentum_buffer' "
                               "are f64, expected f32");
  bufferScales.tensor.dtype = {kDLFloat, 32, 1};
  bufferScales.shape[1] = 1;
  refuse(STEPC_SHAPE_MISMATCH, "tensor 'w': scales of state 'momentum_buffer' "
                               "have shape [70, 1], expected [70, 2]");
  bufferScales.shape[1] = 2;
  int64_t strides[] = {1, kRows};
  bufferScales.tensor.strides = strides;
  refuse(STEPC_LAYOUT_UNSUPPORTED,
         "tensor 'w': scales of state 'momentum_buffer' have strides [1, 70], "
         "they must be row-major without gaps");
  bufferScales.tensor.strides = nullptr;
  bufferScales.tensor.data = secondScales.memory.data() + 8;
  refuse(STEPC_OVERLAP,
         "tensor 'w': scales of state 'momentum_buffer' and tensor 'w': scales "
         "of state 'second' share memory");
  bufferScales.tensor.data = buffer.memory.data() + 4;
  refuse(STEPC_OVERLAP,
         "tensor 'w': scales of state 'momentum_buffer' and tensor 'w': state "
         "'momentum_buffer' share memory");
}

/// Blocks lie along the rows of the shape, of parameters by columns, too, which
/// may become so, and for gradients that lie as they like.
TEST_F(CodesTest, parametersByColumns) {
  binding.states = nullptr;
  ASSERT_OK(bind());
  Array turned(Type::F32, {kRows, kColumns}, Layout::ColumnMajor);
  turned.fill(1);
  PlanPtr other = makePlan(getToy());
  ASSERT_OK(stepcPlanAddGroup(other.get(), nullptr, 0, nullptr, 0, nullptr));
  StepcBinding own = binding;
  own.param = turned.dl();
  ASSERT_OK(stepcPlanBind(other.get(), &own, 1, nullptr));
  auto compare = [&] {
    ASSERT_OK(stepcStep(plan.get()));
    ASSERT_OK(stepcStep(other.get()));
    for (int64_t k = 0; k < kRows * kColumns; ++k)
      ASSERT_EQ(param.get(k), turned.get(k)) << k;
    for (const char *name : {"second", "momentum_buffer"}) {
      DLTensor codes, others;
      ASSERT_OK(stepcPlanGetState(plan.get(), 0, name, &codes));
      ASSERT_OK(stepcPlanGetState(other.get(), 0, name, &others));
      EXPECT_EQ(0, std::memcmp(codes.data, others.data, kRows * kColumns));
    }
  };
  compare();
  Array turnedGrad(Type::F32, {kRows, kColumns}, Layout::ColumnMajor);
  turnedGrad.fill(2);
  ASSERT_OK(stepcPlanSetGrad(other.get(), 0, turnedGrad.dl()));
  compare();
  Array now(Type::F32, {kRows, kColumns}, Layout::ColumnMajor);
  for (int64_t k = 0; k < kRows * kColumns; ++k)
    now.set(k, param.get(k));
  ASSERT_OK(stepcPlanSetParam(plan.get(), 0, now.dl()));
  ASSERT_OK(stepcStep(plan.get()));
  ASSERT_OK(stepcStep(other.get()));
  for (int64_t k = 0; k < kRows * kColumns; ++k)
    ASSERT_EQ(now.get(k), turned.get(k)) << k;
}

TEST_F(CodesTest, gradientsInTheirMemory) {
  // A gradient of which the last four elements are the first scales.
  constexpr size_t kSize = kRows * kColumns * sizeof(float);
  std::vector<char> both(kSize + secondScales.memory.size());
  secondScales.tensor.data = both.data() + kSize;
  ASSERT_OK(bind());
  Bytes large({kRows, kColumns}, {kDLFloat, 32, 1});
  large.tensor.data = both.data() + 16;
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'w': gradient and tensor 'w': scales of state "
                 "'second' share memory",
                 stepcPlanSetGrad(plan.get(), 0, &large.tensor));
}

TEST_F(CodesTest, statesOfOtherTypes) {
  Array wide(Type::F64, {kRows, kColumns}), grads(Type::F64, {kRows, kColumns});
  binding.param = wide.dl();
  binding.grad = grads.dl();
  binding.states = nullptr;
  refuse(STEPC_DTYPE_MISMATCH,
         "tensor 'w': state 'second' is f64, those of f32 are kept as codes");
}

TEST_F(CodesTest, whatIsCutInsideOfABlock) {
  StepcAxis axis = {"x", 2, 0};
  StepcCommunicator none = {};
  none.structSize = sizeof(none);
  none.reduce = [](void *, const StepcReduceCall *, int64_t, char *,
                   size_t) -> int32_t { return 0; };
  ASSERT_OK(stepcPlanSetMesh(plan.get(), &axis, 1, &none));
  int64_t whole[] = {kRows, 200}, start[] = {0, 0};
  uint64_t axes[] = {0, 1};
  StepcLayout layout = {};
  layout.structSize = sizeof(layout);
  layout.shape = whole;
  layout.ndim = 2;
  layout.dimAxes = axes;
  binding.layout = &layout;
  refuse(STEPC_LAYOUT_UNSUPPORTED,
         "tensor 'w': state 'second' is kept as codes in blocks of 64 elements "
         "along rows of 200, and the layout does not say where this rank's "
         "part begins");
  layout.start = start;
  ASSERT_OK(bind());
}

} // namespace
