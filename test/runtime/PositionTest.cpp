//===- PositionTest.cpp - where the elements of a part stand --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

using namespace stepc_test;
using nlohmann::json;

namespace {

/// The toy's f32 variant with a position behind its operands, which its kernels
/// do not read.
json makeManifest() {
  json manifest = makeToyManifest();
  json variant = manifest["variants"][0];
  variant["operands"].push_back(
      makeOperand("position", "position", "i64", true, false));
  manifest["variants"] = {variant};
  return manifest;
}

class PositionTest : public ::testing::Test {
protected:
  void SetUp() override {
    package = loadManifest(makeManifest());
    plan = makePlan(package.get());
    ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    axis = {"x", 2, 1};
    communicator.structSize = sizeof(communicator);
    communicator.reduce = [](void *, const StepcReduceCall *, int64_t, char *,
                             size_t) -> int32_t { return 0; };
    ASSERT_OK(stepcPlanSetMesh(plan.get(), &axis, 1, &communicator));
    layout.structSize = sizeof(layout);
    layout.ndim = 2;
    layout.shape = shape;
    layout.dimAxes = dimAxes;
    layout.start = start;
  }
  StepcStatus bind(const DLTensor *param) {
    StepcBinding binding = makeBinding("w", param, nullptr);
    binding.gradDtype = getDLType(Type::F32);
    binding.layout = &layout;
    binding.number = number;
    return stepcPlanBind(plan.get(), &binding, 1, nullptr);
  }

  PackagePtr package;
  PlanPtr plan;
  StepcAxis axis;
  StepcCommunicator communicator = {};
  StepcLayout layout = {};
  int64_t shape[2] = {4, 9}, start[2] = {0, 5};
  uint64_t dimAxes[2] = {0, 1};
  int64_t number = 1;
  Array part{Type::F32, {4, 4}};
};

TEST_F(PositionTest, binds) {
  ASSERT_OK(bind(part.dl()));
  EXPECT_EQ(1, getInfo(plan.get()).numTensors);
}

TEST_F(PositionTest, numbers) {
  for (int64_t wrong : {int64_t(-1), int64_t(1) << 23}) {
    number = wrong;
    std::string message = "tensor 'w': number " + std::to_string(wrong) +
                          " is not one from 1 to 8388607";
    EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, message.c_str(), bind(part.dl()));
  }
  EXPECT_EQ(0, getInfo(plan.get()).numTensors);
}

TEST_F(PositionTest, wherePartsBegin) {
  const char *wrong = "tensor 'w': parameter has shape [4, 4], dim 1 of it "
                      "begins at %d of the whole tensor's, [4, 9]";
  for (int64_t begin : {-1, 6}) {
    start[1] = begin;
    char message[200];
    std::snprintf(message, sizeof(message), wrong, int(begin));
    EXPECT_REFUSED(STEPC_SHAPE_MISMATCH, message, bind(part.dl()));
  }
  const char *unknown =
      "tensor 'w': stochastic rounding needs to know where the part of shape "
      "[4, 4] begins in the whole of shape [4, 9], which the layout does not "
      "say";
  layout.start = nullptr;
  EXPECT_REFUSED(STEPC_LAYOUT_UNSUPPORTED, unknown, bind(part.dl()));
  // Callers of an earlier version do not have the field.
  layout.start = start;
  layout.structSize = offsetof(StepcLayout, start);
  EXPECT_REFUSED(STEPC_LAYOUT_UNSUPPORTED, unknown, bind(part.dl()));
}

TEST_F(PositionTest, ranges) {
  Array range(Type::F32, {16});
  layout.flat = 1;
  layout.flatAxes = 1;
  layout.dimAxes = nullptr;
  layout.begin = 5;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 'w': the layout is flat and says where dims begin",
                 bind(range.dl()));
  layout.start = nullptr;
  shape[0] = int64_t(1) << 40;
  EXPECT_REFUSED(STEPC_SHAPE_MISMATCH,
                 "tensor 'w' has 9895604649984 elements, random numbers tell "
                 "1099511627776 apart",
                 bind(range.dl()));
  shape[0] = 4;
  ASSERT_OK(bind(range.dl()));
}

TEST(Position, manifest) {
  auto refuse = [](const char *key, const json &value, const char *message) {
    json manifest = makeManifest();
    json &operand = manifest["variants"][0]["operands"].back();
    operand[key] = value;
    std::string bytes = makePackage(manifest, readFile(STEPC_TEST_KERNELS));
    StepcPackage *package = nullptr;
    std::string whole = "package '<memory>' is corrupt: manifest.json: "
                        "'variants[0].operands[4]." +
                        std::string(key) + "' " + message;
    EXPECT_REFUSED(STEPC_CORRUPT_PACKAGE, whole.c_str(),
                   stepcPackageLoadBytes(bytes.data(), bytes.size(), &package));
  };
  refuse("storage", "f32", "is not that of a position");
  refuse("writes", true, "is true for a position");
  refuse("dims", {"1"}, "is not the rule's");
}

} // namespace
