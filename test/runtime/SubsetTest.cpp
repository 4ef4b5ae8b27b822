//===- SubsetTest.cpp - steps in parts ------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

#include <algorithm>
#include <random>

using namespace stepc_test;

namespace {

std::vector<TensorSpec> makeSpecs() {
  std::vector<TensorSpec> specs;
  for (int64_t i = 0; i < 20; ++i)
    specs.push_back({i % 4 == 1 ? Type::BF16 : Type::F32,
                     {3 + i, 7},
                     i % 3 ? Layout::RowMajor : Layout::Padded});
  return specs;
}

/// k calls on parts of the tensors, in any order, are one call.
TEST(Subset, anyCutGivesTheSameBits) {
  Model whole(makeSpecs());
  for (int i = 0; i < 6; ++i)
    whole.step();
  whole.check();
  for (size_t size : {1, 3, 7, 20}) {
    Model parts(makeSpecs());
    std::mt19937 random(uint32_t(size) + 5);
    for (int i = 0; i < 6; ++i) {
      parts.makeGrads(true);
      parts.setGrads();
      std::vector<int64_t> ids = parts.ids;
      std::shuffle(ids.begin(), ids.end(), random);
      ASSERT_OK(stepcStepBegin(parts.plan.get()));
      for (size_t at = 0; at < ids.size(); at += size)
        ASSERT_OK(stepcStepTensors(parts.plan.get(), ids.data() + at,
                                   int64_t(std::min(size, ids.size() - at))));
      ASSERT_OK(stepcStepEnd(parts.plan.get()));
      parts.stepReference();
    }
    parts.check();
    EXPECT_EQ(whole.bits(), parts.bits()) << "parts of " << size;
  }
}

/// Tensors that no part names are skipped; whole steps and steps in parts mix.
TEST(Subset, someAreSkipped) {
  Model model(makeSpecs());
  std::mt19937 random(11);
  for (int step = 0; step < 20; ++step) {
    if (step % 3 == 2) {
      model.step();
      continue;
    }
    model.makeGrads(true);
    model.setGrads();
    std::vector<bool> missing;
    std::vector<int64_t> ids;
    for (size_t i = 0; i < model.ids.size(); ++i) {
      missing.push_back(random() % 3 == 0);
      if (!missing.back())
        ids.push_back(model.ids[i]);
    }
    ASSERT_OK(stepcStepBegin(model.plan.get()));
    ASSERT_OK(
        stepcStepTensors(model.plan.get(), ids.data(), int64_t(ids.size())));
    ASSERT_OK(stepcStepEnd(model.plan.get()));
    model.stepReference(missing);
    model.check();
  }
}

/// As in a backward pass that steps each tensor once its gradient is there,
/// and gives the gradient up afterwards.
TEST(Subset, gradientsThatComeOneByOne) {
  Model model(makeSpecs());
  for (int step = 0; step < 5; ++step) {
    model.makeGrads(true);
    model.setGrads(std::vector<bool>(model.ids.size(), true));
    ASSERT_OK(stepcStepBegin(model.plan.get()));
    for (size_t i = model.ids.size(); i-- > 0;) {
      ASSERT_OK(stepcPlanSetGrad(model.plan.get(), model.ids[i],
                                 model.grads[i]->dl()));
      ASSERT_OK(stepcStepTensors(model.plan.get(), &model.ids[i], 1));
      ASSERT_OK(stepcPlanSetGrad(model.plan.get(), model.ids[i], nullptr));
    }
    ASSERT_OK(stepcStepEnd(model.plan.get()));
    model.stepReference();
    model.check();
  }
  EXPECT_EQ(5, getInfo(model.plan.get()).steps);
}

/// Hyper-parameters are fixed by begin.
TEST(Subset, hypersFromTheNextStepOn) {
  Model model({{Type::F32, {9}}, {Type::F32, {9}}});
  ASSERT_OK(stepcStepBegin(model.plan.get()));
  ASSERT_OK(stepcStepTensors(model.plan.get(), &model.ids[0], 1));
  Hypers later = {0.5, 0.25, 0.0};
  model.stepReference();
  model.setHypers(0, later);
  ASSERT_OK(stepcStepTensors(model.plan.get(), &model.ids[1], 1));
  ASSERT_OK(stepcStepEnd(model.plan.get()));
  model.check();
  model.step();
  model.check();
}

TEST(Subset, countsChangeAtTheEnd) {
  PlanPtr plan = makePlan(getToy());
  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  Array param(Type::F32, {3}), grad(Type::F32, {3});
  float mirror = -1.0f;
  StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
  binding.countMirror = &mirror;
  int64_t id, count;
  ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, &id));
  ASSERT_OK(stepcStepBegin(plan.get()));
  ASSERT_OK(stepcStepTensors(plan.get(), &id, 1));
  ASSERT_OK(stepcPlanGetCount(plan.get(), id, &count));
  EXPECT_EQ(0, count);
  ASSERT_OK(stepcStepEnd(plan.get()));
  ASSERT_OK(stepcPlanGetCount(plan.get(), id, &count));
  EXPECT_EQ(1, count);
  EXPECT_EQ(1.0f, mirror);
}

TEST(Subset, refusals) {
  Model model({{Type::F32, {9}}, {Type::F32, {9}}, {Type::F32, {9}}});
  StepcPlan *plan = model.plan.get();
  model.setGrads({false, false, true});
  EXPECT_REFUSED(STEPC_WRONG_STATE, "stepcStepTensors without stepcStepBegin",
                 stepcStepTensors(plan, model.ids.data(), 1));
  EXPECT_REFUSED(STEPC_WRONG_STATE, "stepcStepEnd without stepcStepBegin",
                 stepcStepEnd(plan));
  ASSERT_OK(stepcStepBegin(plan));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcStepBegin between stepcStepBegin and stepcStepEnd",
                 stepcStepBegin(plan));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcStep between stepcStepBegin and stepcStepEnd",
                 stepcStep(plan));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcPlanBind between stepcStepBegin and stepcStepEnd",
                 stepcPlanBind(plan, nullptr, 0, nullptr));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcPlanSetCount between stepcStepBegin and stepcStepEnd",
                 stepcPlanSetCount(plan, 0, 1));
  std::string before = model.bits();
  auto refuse = [&](StepcStatus status, const char *message,
                    std::vector<int64_t> ids) {
    EXPECT_REFUSED(status, message,
                   stepcStepTensors(plan, ids.data(), int64_t(ids.size())));
    EXPECT_EQ(before, model.bits());
  };
  refuse(STEPC_INVALID_ARGUMENT, "tensor 3 does not exist, the plan has 3",
         {0, 1, 3});
  refuse(STEPC_WRONG_STATE, "tensor 2 has no gradient", {0, 2});
  refuse(STEPC_WRONG_STATE, "tensor 1 has been stepped since stepcStepBegin",
         {0, 1, 1});
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "1 tensors were given, without ids",
                 stepcStepTensors(plan, nullptr, 1));
  // The refused calls have marked nothing as stepped.
  ASSERT_OK(stepcStepTensors(plan, model.ids.data(), 2));
  before = model.bits();
  refuse(STEPC_WRONG_STATE, "tensor 0 has been stepped since stepcStepBegin",
         {0});
  ASSERT_OK(stepcStepEnd(plan));
  model.stepReference({false, false, true});
  model.check();
}

void refuseParts(const nlohmann::json &manifest) {
  PackagePtr package = loadManifest(manifest);
  PlanPtr plan = makePlan(package.get());
  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  Array param(Type::F32, {3}), grad(Type::F32, {3});
  StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
  int64_t id;
  ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, &id));
  ASSERT_OK(stepcStep(plan.get()));
  ASSERT_OK(stepcStepBegin(plan.get()));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "optimizer 'toy' steps all tensors at once, use stepcStep",
                 stepcStepTensors(plan.get(), &id, 1));
  ASSERT_OK(stepcStepEnd(plan.get()));
}

/// Says the manifest whether some tensors may go first; where there are rounds
/// none may, whatever it says.
TEST(Subset, definitionsThatPermitNone) {
  nlohmann::json manifest = makeToyManifest();
  for (nlohmann::json &variant : manifest["variants"])
    variant["subsets"] = false;
  refuseParts(manifest);
  manifest = makeToyManifest();
  manifest["rounds"].push_back({{"calls", nlohmann::json::array()}});
  refuseParts(manifest);
}

} // namespace
