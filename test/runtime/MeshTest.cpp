//===- MeshTest.cpp - meshes, and layouts that are refused --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/ShardModel.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>

using namespace stepc_test;

namespace {

/// A communicator that is asked for nothing, or says what it is told to.
int32_t failReduce(void *context, const StepcReduceCall *, int64_t,
                   char *message, size_t messageSize) {
  if (context)
    std::strncpy(message, static_cast<const char *>(context), messageSize);
  return 7;
}

StepcCommunicator makeCommunicator(const char *message = nullptr) {
  StepcCommunicator communicator = {};
  communicator.structSize = sizeof(communicator);
  communicator.context = const_cast<char *>(message);
  communicator.reduce = failReduce;
  return communicator;
}

TEST(Mesh, refused) {
  PlanPtr plan = makePlan(getShare());
  StepcCommunicator good = makeCommunicator();
  auto refuse = [&](std::vector<StepcAxis> axes, const char *message,
                    const StepcCommunicator *communicator) {
    EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, message,
                   stepcPlanSetMesh(plan.get(), axes.data(),
                                    int64_t(axes.size()), communicator));
  };
  refuse({{"x", 2, 0}, {nullptr, 2, 0}}, "axis 1 of the mesh has no name",
         &good);
  refuse({{"", 2, 0}}, "axis 0 of the mesh has no name", &good);
  refuse({{"x", 2, 0}, {"y", 2, 0}, {"x", 2, 0}}, "axis 'x' comes twice",
         &good);
  refuse({{"x", 0, 0}}, "axis 'x' has size 0, the least is 1", &good);
  refuse({{"x", 4, 4}}, "axis 'x': coordinate 4 is outside 0 to 3", &good);
  refuse({{"x", 4, -1}}, "axis 'x': coordinate -1 is outside 0 to 3", &good);
  refuse({{"x", 1, 0}, {"y", 2, 0}},
         "axis 'y' has size 2, but there is no communicator", nullptr);
  StepcCommunicator bad = good;
  bad.reduce = nullptr;
  refuse({{"x", 2, 0}}, "the communicator's reduce is NULL", &bad);
  bad = good;
  bad.structSize = 8;
  refuse({{"x", 2, 0}}, "StepcCommunicator has struct size 8, the least is 24",
         &bad);
  bad = good;
  bad.reserved = 1;
  refuse({{"x", 2, 0}}, "a reserved field of the communicator is 1, not 0",
         &bad);
  std::vector<std::string> names;
  for (int i = 0; i < 65; ++i)
    names.push_back("x" + std::to_string(i));
  std::vector<StepcAxis> many;
  for (std::string &name : names)
    many.push_back({name.c_str(), 1, 0});
  refuse(many, "the mesh has 65 axes, the most are 64", &good);
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "1 axes were given, without values",
                 stepcPlanSetMesh(plan.get(), nullptr, 1, &good));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "plan is NULL",
                 stepcPlanSetMesh(nullptr, nullptr, 0, &good));
  many.pop_back();
  ASSERT_OK(stepcPlanSetMesh(plan.get(), many.data(), 64, nullptr));
}

/// A caller of an earlier version has no fields for streams.
TEST(Mesh, shorterCommunicator) {
  constexpr size_t kSize = offsetof(StepcCommunicator, enqueue);
  static_assert(kSize == 24);
  StepcCommunicator communicator = makeCommunicator();
  communicator.structSize = kSize;
  // Beyond it is what is no field of it.
  std::unique_ptr<char[]> bytes(new char[kSize]);
  std::memcpy(bytes.get(), &communicator, kSize);
  PlanPtr plan = makePlan(getShare());
  StepcAxis axis = {"x", 2, 0};
  ASSERT_OK(stepcPlanSetMesh(
      plan.get(), &axis, 1,
      reinterpret_cast<const StepcCommunicator *>(bytes.get())));
  communicator.structSize = kSize - 1;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "StepcCommunicator has struct size 23, the least is 24",
                 stepcPlanSetMesh(plan.get(), &axis, 1, &communicator));
}

class LayoutTest : public testing::Test {
protected:
  LayoutTest() {
    StepcAxis axes[] = {{"x", 2, 0}, {"y", 3, 1}, {"z", 1, 0}};
    StepcCommunicator communicator = makeCommunicator();
    EXPECT_EQ(STEPC_OK,
              stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    EXPECT_EQ(STEPC_OK, stepcPlanSetMesh(plan.get(), axes, 3, &communicator));
  }

  StepcStatus bind(Array &array) {
    StepcBinding binding = makeBinding("w", array.dl(), array.dl());
    Array grad(Type::F32, array.shape);
    binding.grad = grad.dl();
    binding.layout = &layout;
    layout.structSize = sizeof(layout);
    layout.ndim = int32_t(shape.size());
    layout.shape = shape.data();
    return stepcPlanBind(plan.get(), &binding, 1, nullptr);
  }
  void refuse(StepcStatus status, const char *message) {
    EXPECT_REFUSED(status, message, bind(part));
    EXPECT_EQ(0, getInfo(plan.get()).numTensors);
  }

  PlanPtr plan = makePlan(getShare());
  Array part{Type::F32, {4, 6}};
  std::vector<int64_t> shape = {8, 6};
  std::vector<uint64_t> dimAxes = {1, 0};
  StepcLayout layout = {0, 0, 0, nullptr, dimAxes.data(), 0, 0, 0, nullptr};
};

TEST_F(LayoutTest, fields) {
  auto invalid = [&](auto change, const char *message) {
    StepcLayout good = layout;
    change(layout);
    refuse(STEPC_INVALID_ARGUMENT, message);
    layout = good;
  };
  invalid([](StepcLayout &l) { l.flat = 2; },
          "tensor 'w': flat of the layout is 2, neither 0 nor 1");
  invalid([](StepcLayout &l) { l.flat = 1; },
          "tensor 'w': the layout is flat and names axes of dims");
  invalid([](StepcLayout &l) { l.flat = 1, l.dimAxes = nullptr; },
          "tensor 'w': the layout is flat over no axis");
  invalid([](StepcLayout &l) { l.flatAxes = 2; },
          "tensor 'w': the layout names axes of a flat range, but is not "
          "flat");
  invalid([](StepcLayout &l) { l.begin = 5; },
          "tensor 'w': the layout begins at 5, but is not flat");
  invalid([](StepcLayout &l) { l.distinctAxes = 8; },
          "tensor 'w': the layout names axis 3, the mesh has 3");
  invalid([](StepcLayout &l) { l.distinctAxes = 1; },
          "tensor 'w': the layout names axis 'x' twice");
  dimAxes = {2, 2};
  refuse(STEPC_INVALID_ARGUMENT, "tensor 'w': the layout names axis 'y' twice");
  StepcBinding binding = makeBinding("w", part.dl(), nullptr);
  binding.gradDtype = getDLType(Type::F32);
  binding.layout = &layout;
  layout.structSize = 16;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "StepcLayout has struct size 16, the least is 56",
                 stepcPlanBind(plan.get(), &binding, 1, nullptr));
  layout.structSize = sizeof(layout);
  layout.ndim = 2;
  layout.shape = nullptr;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 'w': the layout has rank 2 and no shape",
                 stepcPlanBind(plan.get(), &binding, 1, nullptr));
}

TEST_F(LayoutTest, shapes) {
  shape = {8, 6, 1};
  dimAxes = {1, 0, 0};
  layout.dimAxes = dimAxes.data();
  refuse(STEPC_SHAPE_MISMATCH, "tensor 'w': parameter has shape [4, 6], the "
                               "whole tensor has [8, 6, 1]");
  shape = {3, 6};
  refuse(STEPC_SHAPE_MISMATCH,
         "tensor 'w': parameter has shape [4, 6], dim 0 is larger than that of "
         "the whole tensor, [3, 6]");
  shape = {8, 7};
  refuse(STEPC_SHAPE_MISMATCH,
         "tensor 'w': parameter has shape [4, 6], dim 1 is not sharded and "
         "differs from that of the whole tensor, [8, 7]");
  // Over an axis of one rank there is only the whole.
  shape = {8, 6};
  dimAxes = {4, 0, 0};
  refuse(STEPC_SHAPE_MISMATCH,
         "tensor 'w': parameter has shape [4, 6], dim 0 is not sharded and "
         "differs from that of the whole tensor, [8, 6]");
  shape = {int64_t(1) << 60, 6};
  refuse(STEPC_SHAPE_MISMATCH, "tensor 'w': the layout has the impossible "
                               "shape [1152921504606846976, 6]");
  shape = {8};
  dimAxes = {1};
  refuse(STEPC_SHAPE_MISMATCH, "tensor 'w': parameter has shape [4, 6], the "
                               "whole tensor has [8]");
}

TEST_F(LayoutTest, ranges) {
  layout.flat = 1;
  layout.flatAxes = 3;
  layout.dimAxes = nullptr;
  refuse(STEPC_SHAPE_MISMATCH,
         "tensor 'w': parameter has shape [4, 6], a flat range has one dim");
  Array range(Type::F32, {20});
  layout.begin = 29;
  EXPECT_REFUSED(STEPC_SHAPE_MISMATCH,
                 "tensor 'w': a range of 20 elements from 29 on is not inside "
                 "the 48 of shape [8, 6]",
                 bind(range));
  layout.begin = -1;
  EXPECT_REFUSED(STEPC_SHAPE_MISMATCH,
                 "tensor 'w': a range of 20 elements from -1 on is not inside "
                 "the 48 of shape [8, 6]",
                 bind(range));
  layout.begin = 0;
  layout.flatAxes = 4;
  EXPECT_REFUSED(STEPC_SHAPE_MISMATCH,
                 "tensor 'w': a range of 20 elements is not all 48 of shape "
                 "[8, 6], but no other rank has a part",
                 bind(range));
  layout.flatAxes = 3;
  Array sliced(Type::F32, {20}, Layout::Sliced);
  EXPECT_REFUSED(STEPC_LAYOUT_UNSUPPORTED,
                 "tensor 'w': parameter has strides [2], that of a flat range "
                 "must be dense",
                 bind(sliced));
  layout.begin = 28;
  ASSERT_OK(bind(range));
  EXPECT_REFUSED(STEPC_LAYOUT_UNSUPPORTED,
                 "tensor 'w': gradient has strides [2], that of a flat range "
                 "must be dense",
                 stepcPlanSetGrad(plan.get(), 0, sliced.dl()));
  // States that are reduced are whole.
  DLTensor rows;
  ASSERT_OK(stepcPlanGetState(plan.get(), 0, "rows", &rows));
  ASSERT_EQ(2, rows.ndim);
  EXPECT_EQ(8, rows.shape[0]);
  EXPECT_EQ(1, rows.shape[1]);
}

/// Rules are chosen by the whole shape, variants by what is sharded.
TEST_F(LayoutTest, variants) {
  shape = {8, 6, 7, 7};
  dimAxes = {1, 0, 0, 2};
  layout.dimAxes = dimAxes.data();
  Array four(Type::F32, {4, 6, 7, 3});
  EXPECT_REFUSED(STEPC_LAYOUT_UNSUPPORTED,
                 "tensor 'w' is sharded in [...b, m], the package has rule "
                 "'matrix' sharded in: no dims; [n]; [m]; [n, m]; [...b]; "
                 "[...b, n]; [flat range]",
                 bind(four));
  shape = {8};
  dimAxes = {1};
  Array vector(Type::F32, {4});
  EXPECT_REFUSED(STEPC_SHAPE_MISMATCH,
                 "tensor 'w': no rule of optimizer 'share' takes shape [8]: "
                 "'matrix' has dims [...b, n, m]",
                 bind(vector));
  Array wrong(Type::F64, {4, 6});
  shape = {8, 6};
  dimAxes = {1, 0};
  EXPECT_REFUSED(STEPC_DTYPE_MISMATCH,
                 "tensor 'w': the package has no variant for param f64, grad "
                 "f32, it has: param f32, grad f32, state f32",
                 bind(wrong));
  ASSERT_OK(bind(part));
}

/// Without reductions one variant serves all layouts.
TEST(Layout, elements) {
  PlanPtr plan = makePlan(getToy());
  StepcAxis axis = {"x", 2, 1};
  StepcCommunicator communicator = makeCommunicator();
  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  ASSERT_OK(stepcPlanSetMesh(plan.get(), &axis, 1, &communicator));
  Array param(Type::F32, {3, 5}), grad(Type::F32, {3, 5});
  Array range(Type::F32, {9}), rangeGrad(Type::F32, {9});
  int64_t shape[] = {6, 5};
  uint64_t dimAxes[] = {1, 0};
  StepcLayout dims = {sizeof(dims), 2, 0, shape, dimAxes, 0, 0, 0, nullptr};
  StepcLayout flat = {sizeof(flat), 2, 1, shape, nullptr, 1, 21, 0, nullptr};
  StepcBinding bindings[] = {makeBinding("a", param.dl(), grad.dl()),
                             makeBinding("b", range.dl(), rangeGrad.dl())};
  bindings[0].layout = &dims;
  bindings[1].layout = &flat;
  ASSERT_OK(stepcPlanBind(plan.get(), bindings, 2, nullptr));
  ASSERT_OK(stepcStep(plan.get()));
  EXPECT_EQ(0, getInfo(plan.get()).exchangeRounds);
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcPlanSetMesh after 2 tensors were bound",
                 stepcPlanSetMesh(plan.get(), nullptr, 0, nullptr));
}

/// A caller of an earlier version does not know of layouts.
TEST(Layout, shorterBinding) {
  PlanPtr plan = makePlan(getToy());
  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  Array a(Type::F32, {3}), b(Type::F32, {4});
  constexpr size_t kSize = offsetof(StepcBinding, layout);
  alignas(StepcBinding) char bytes[2 * kSize];
  StepcBinding bindings[] = {makeBinding("a", a.dl(), nullptr),
                             makeBinding("b", b.dl(), nullptr)};
  for (int i = 0; i < 2; ++i) {
    bindings[i].structSize = kSize;
    bindings[i].gradDtype = getDLType(Type::F32);
    std::memcpy(bytes + size_t(i) * kSize, &bindings[i], kSize);
  }
  ASSERT_OK(stepcPlanBind(plan.get(), reinterpret_cast<StepcBinding *>(bytes),
                          2, nullptr));
  EXPECT_EQ(2, getInfo(plan.get()).numTensors);
}

/// What the communicator says, or its code.
TEST(Mesh, communicatorFails) {
  for (const char *words : {"no route", ""}) {
    PlanPtr plan = makePlan(getShare());
    StepcAxis axis = {"x", 2, 0};
    StepcCommunicator communicator = makeCommunicator(words);
    ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    ASSERT_OK(stepcPlanSetMesh(plan.get(), &axis, 1, &communicator));
    Array param(Type::F32, {3, 5}), grad(Type::F32, {3, 5});
    StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
    ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, nullptr));
    std::string message = std::string("round 0 of 'share': ") +
                          (*words ? words : "the communicator returned 7");
    EXPECT_REFUSED(STEPC_COMMUNICATION_ERROR, message.c_str(),
                   stepcStep(plan.get()));
    EXPECT_STATUS(STEPC_POISONED, stepcStep(plan.get()));
    EXPECT_EQ(0, getInfo(plan.get()).steps);
  }
}

/// A function that was not run is none that has succeeded.
TEST(Mesh, communicatorSaysWhatSuccessIs) {
  auto answer = [](void *context, const StepcReduceCall *, int64_t, char *,
                   size_t) { return *static_cast<int32_t *>(context); };
  for (int32_t code : {1, 0, -1}) {
    PlanPtr plan = makePlan(getShare());
    StepcAxis axis = {"x", 2, 0};
    StepcCommunicator communicator = makeCommunicator();
    communicator.context = &code;
    communicator.reduce = answer;
    communicator.success = 1;
    ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    ASSERT_OK(stepcPlanSetMesh(plan.get(), &axis, 1, &communicator));
    Array param(Type::F32, {3, 5}), grad(Type::F32, {3, 5});
    StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
    ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, nullptr));
    if (code == 1) {
      ASSERT_OK(stepcStep(plan.get()));
      continue;
    }
    std::string message =
        "round 0 of 'share': the communicator returned " + std::to_string(code);
    EXPECT_REFUSED(STEPC_COMMUNICATION_ERROR, message.c_str(),
                   stepcStep(plan.get()));
    EXPECT_EQ(0, getInfo(plan.get()).steps);
  }
}

TEST(Mesh, communicatorThrows) {
  PlanPtr plan = makePlan(getShare());
  StepcAxis axis = {"x", 2, 0};
  StepcCommunicator communicator = makeCommunicator();
  communicator.reduce = [](void *, const StepcReduceCall *, int64_t, char *,
                           size_t) -> int32_t {
    throw std::runtime_error("lost");
  };
  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  ASSERT_OK(stepcPlanSetMesh(plan.get(), &axis, 1, &communicator));
  EXPECT_REFUSED(STEPC_COMMUNICATION_ERROR,
                 "round 0 of 'share': the communicator threw",
                 stepcStep(plan.get()));
}

/// Dims that a rule does not tell apart, or of which it knows the extent.
TEST(Layout, dimsOfRules) {
  for (std::vector<std::string> dims :
       {std::vector<std::string>{"n", "n"}, {"1", "m"}}) {
    nlohmann::json manifest = makePlainManifest("toy_idle");
    manifest["rules"][0]["dims"] = dims;
    manifest["rules"][0]["unshardable"] = {{"dims", {dims[0]}}};
    nlohmann::json &variant = manifest["variants"][0];
    for (nlohmann::json &operand : variant["operands"])
      operand["dims"] = dims;
    variant["scalars"]["functions"] = nlohmann::json::array();
    variant["space"] = "tiles";
    PackagePtr package = loadManifest(manifest);
    PlanPtr plan = makePlan(package.get());
    StepcAxis axis = {"x", 2, 0};
    StepcCommunicator communicator = makeCommunicator();
    ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    ASSERT_OK(stepcPlanSetMesh(plan.get(), &axis, 1, &communicator));
    int64_t extent = dims[0] == "1" ? 1 : 6;
    Array param(Type::F32, {extent / 2, 6}), grad(Type::F32, {extent / 2, 6});
    int64_t shape[] = {extent, 6};
    uint64_t dimAxes[] = {1, 0};
    StepcLayout layout = {sizeof(layout), 2, 0, shape, dimAxes, 0, 0, 0,
                          nullptr};
    StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
    binding.layout = &layout;
    std::string message = "tensor 'w': dim 0 is sharded, which rule 'any' of "
                          "dims [" +
                          dims[0] + ", " + dims[1] +
                          "] does not permit; one rank can step the whole "
                          "tensor, bound as distinct over these axes";
    EXPECT_REFUSED(STEPC_LAYOUT_UNSUPPORTED, message.c_str(),
                   stepcPlanBind(plan.get(), &binding, 1, nullptr));
  }
}

} // namespace
