//===- GroupTest.cpp - groups, hyper-parameters and options ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

#include <cmath>

using namespace stepc_test;

namespace {

class GroupTest : public testing::Test {
protected:
  PlanPtr plan = makePlan(getToy());
  int64_t id = -7;

  StepcStatus add(std::vector<StepcOption> options,
                  std::vector<double> hypers = {}) {
    return stepcPlanAddGroup(
        plan.get(), options.data(), int64_t(options.size()),
        hypers.empty() ? nullptr : hypers.data(), int64_t(hypers.size()), &id);
  }
};

TEST_F(GroupTest, idsCount) {
  ASSERT_OK(add({}));
  EXPECT_EQ(0, id);
  ASSERT_OK(add({{"maximize", 1}}, {0.1, 0.0, 0.0}));
  EXPECT_EQ(1, id);
  EXPECT_EQ(2, getInfo(plan.get()).numGroups);
}

TEST_F(GroupTest, refusals) {
  EXPECT_REFUSED(STEPC_UNKNOWN_NAME,
                 "optimizer 'toy' has no option 'amsgrad', it has: maximize",
                 add({{"amsgrad", 1}}));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "option 'has_momentum' of optimizer 'toy' follows from "
                 "hyper-parameter 'momentum'",
                 add({{"has_momentum", 1}}));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "option 'maximize' is given twice",
                 add({{"maximize", 1}, {"maximize", 1}}));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "an option has no name",
                 add({{nullptr, 1}}));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "option 'maximize' is 7, neither 0 nor 1",
                 add({{"maximize", 7}}));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "option 'maximize' is -1, neither 0 nor 1",
                 add({{"maximize", -1}}));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "optimizer 'toy' has 3 hyper-parameters, 2 were given",
                 add({}, {0.1, 0.2}));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "optimizer 'toy' has 3 hyper-parameters, 0 were given",
                 stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 3, &id));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "1 options were given, without values",
                 stepcPlanAddGroup(plan.get(), nullptr, 1, nullptr, 0, &id));
  EXPECT_EQ(-7, id);
  EXPECT_EQ(0, getInfo(plan.get()).numGroups);
}

/// Hyper-parameters are the definition's business, NaN too.
TEST_F(GroupTest, nanPassesThrough) {
  ASSERT_OK(add({}, {std::nan(""), 0.9, INFINITY}));
  Array param(Type::F32, {3}), grad(Type::F32, {3});
  StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
  ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, nullptr));
  ASSERT_OK(stepcStep(plan.get()));
  EXPECT_TRUE(std::isnan(param.get(0)));
  // NaN differs from 0: the option stays.
  double hypers[] = {0.1, std::nan(""), 0.0};
  ASSERT_OK(stepcPlanSetHypers(plan.get(), 0, hypers, 3));
}

TEST_F(GroupTest, setHypers) {
  double hypers[] = {0.1, 0.5, 0.0};
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "group 0 does not exist, the plan has 0",
                 stepcPlanSetHypers(plan.get(), 0, hypers, 3));
  ASSERT_OK(add({}));
  ASSERT_OK(stepcPlanSetHypers(plan.get(), 0, hypers, 3));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "optimizer 'toy' has 3 hyper-parameters, 4 were given",
                 stepcPlanSetHypers(plan.get(), 0, hypers, 4));
  hypers[1] = 0.0;
  EXPECT_REFUSED(STEPC_NEEDS_BIND,
                 "group 0: option 'has_momentum' would change from 1 to 0, "
                 "since 'momentum' becomes 0",
                 stepcPlanSetHypers(plan.get(), 0, hypers, 3));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "group -1 does not exist, the plan has 1",
                 stepcPlanSetHypers(plan.get(), -1, hypers, 3));
}

/// A refused change of hyper-parameters leaves the old ones in force; a group
/// without momentum has another variant, without that state.
TEST(Group, numbers) {
  Model model({{Type::F32, {37}, {}, {}, {}, 0, 0},
               {Type::F32, {37}, {}, {}, {}, 0, 1},
               {Type::F32, {37}, {}, {}, {}, 0, 2}},
              {},
              {{{0.03, 0.9, 0.2}, false},
               {{0.5, 0.0, 0.1}, false},
               {{0.01, 0.5, 0.0}, true}});
  model.step();
  double refused[] = {9.0, 0.0, 9.0};
  EXPECT_STATUS(STEPC_NEEDS_BIND,
                stepcPlanSetHypers(model.plan.get(), 0, refused, 3));
  model.step();
  model.setHypers(0, {0.001, 0.7, 0.3});
  model.setHypers(1, {0.002, 0.0, 0.4});
  model.step();
  model.check();
  DLTensor state;
  EXPECT_REFUSED(
      STEPC_UNKNOWN_NAME,
      "tensor 1 has no state 'momentum_buffer', it has: second",
      stepcPlanGetState(model.plan.get(), 1, "momentum_buffer", &state));
}

/// Each predicate of a derived option, on both sides of its constant.
TEST(Group, predicates) {
  struct Case {
    const char *predicate;
    bool below, at, above;
  } cases[] = {{"eq", false, true, false}, {"ne", true, false, true},
               {"lt", true, false, false}, {"le", true, true, false},
               {"gt", false, false, true}, {"ge", false, true, true}};
  for (const Case &c : cases) {
    nlohmann::json manifest = makeToyManifest();
    nlohmann::json &derived = manifest["options"][1]["derived"];
    derived["predicate"] = c.predicate;
    derived["value"] = 0.25;
    // Only variants with has_momentum = 1 remain.
    nlohmann::json kept = nlohmann::json::array();
    for (const nlohmann::json &variant : manifest["variants"])
      if (variant["options"]["has_momentum"] == true)
        kept.push_back(variant);
    manifest["variants"] = kept;
    PackagePtr package = loadManifest(manifest);
    PlanPtr plan = makePlan(package.get());
    for (auto [momentum, expected] :
         {std::pair(0.125, c.below), {0.25, c.at}, {0.5, c.above}}) {
      SCOPED_TRACE(c.predicate + std::string(" ") + std::to_string(momentum));
      double hypers[] = {0.1, momentum, 0.0};
      EXPECT_STATUS(
          expected ? STEPC_OK : STEPC_INVALID_ARGUMENT,
          stepcPlanAddGroup(plan.get(), nullptr, 0, hypers, 3, nullptr));
    }
  }
}

} // namespace
