//===- RuleTest.cpp - which rule takes a tensor -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

using namespace stepc_test;
using nlohmann::json;

namespace {

/// A rule with one variant, whose kernels do nothing and whose state has the
/// rule's name.
void addRule(json &manifest, const std::string &name, json dims, json guard,
             json stateDims = nullptr) {
  json states = {{{"name", name},
                  {"dims", stateDims.is_null() ? dims : stateDims},
                  {"init", 0.0}}};
  manifest["rules"].push_back(
      {{"name", name}, {"dims", dims}, {"guard", guard}, {"states", states}});
  json variant = {{"name", "v_" + name},
                  {"rule", name},
                  {"options", {{"factored", true}}},
                  {"compute", "f32"},
                  {"scalars", {{"functions", json::array()}, {"slots", 0}}},
                  {"rounds", false},
                  {"subsets", true}};
  variant["operands"] = {makeOperand("param", "param", "f32", true, true, dims),
                         makeOperand("grad", "grad", "f32", true, false, dims),
                         makeOperand("state", name.c_str(), "f32", true, true,
                                     stateDims.is_null() ? dims : stateDims)};
  addKernel(variant, "toy_idle", "toy_idle");
  if (!stateDims.is_null())
    variant["space"] = "tiles";
  manifest["variants"].push_back(variant);
  variant["name"] = "v_" + name + "_not";
  variant["options"]["factored"] = false;
  manifest["variants"].push_back(variant);
}

json makeRuleManifest() {
  json manifest = makeHead("ruled");
  manifest["rules"] = json::array();
  manifest["options"] = {{{"name", "factored"}, {"default", true}},
                         {{"name", "min"}, {"default", 4}}};
  addRule(manifest, "square", {"n", "n"},
          {{{"extent", 0}, {"predicate", "eq"}, {"value", 7}}});
  addRule(manifest, "column", {"n", "1"}, json::array());
  addRule(manifest, "matrix", {"...b", "n", "m"},
          {{{"rank", true}, {"predicate", "le"}, {"value", 3}},
           {{"extent", -1}, {"predicate", "ge"}, {"option", "min"}},
           {{"extent", -2}, {"predicate", "gt"}, {"value", 1}},
           {{"option", "factored"}}},
          {"...b", "1", "1"});
  addRule(manifest, "line", {"...b", "m"},
          {{{"extent", 0}, {"predicate", "lt"}, {"value", 9}}}, {"1"});
  addRule(manifest, "scalar", json::array(), json::array());
  addRule(manifest, "many", {"*"},
          {{{"rank", true}, {"predicate", "ne"}, {"value", 1}},
           {{"option", "min"}, {"predicate", "ne"}, {"value", 100}}},
          json::array());
  return manifest;
}

class RuleTest : public testing::Test {
protected:
  void SetUp() override {
    package = loadManifest(makeRuleManifest());
    plan = makePlan(package.get());
    addGroup(1, 4);
    addGroup(0, 4);
    addGroup(1, 100);
  }
  void addGroup(int64_t factored, int64_t min) {
    StepcOption options[] = {{"min", min}, {"factored", factored}};
    ASSERT_OK(stepcPlanAddGroup(plan.get(), options, 2, nullptr, 0, nullptr));
    groups.emplace_back(factored, min);
  }
  StepcStatus bind(std::vector<int64_t> shape, int64_t group, int64_t &id) {
    params.push_back(std::make_unique<Array>(Type::F32, shape));
    grads.push_back(std::make_unique<Array>(Type::F32, shape));
    StepcBinding binding =
        makeBinding("w", params.back()->dl(), grads.back()->dl(), group);
    return stepcPlanBind(plan.get(), &binding, 1, &id);
  }
  void expect(const char *rule, std::vector<int64_t> shape,
              std::vector<int64_t> stateShape, int64_t group = 0) {
    int64_t id;
    ASSERT_OK(bind(shape, group, id));
    DLTensor state;
    ASSERT_OK(stepcPlanGetState(plan.get(), id, rule, &state));
    EXPECT_EQ(stateShape,
              std::vector<int64_t>(state.shape, state.shape + state.ndim));
    expectDescribed(rule, shape, stateShape, group);
  }
  /// Asked about before it is bound, the tensor is said to get the same.
  void expectDescribed(const char *rule, const std::vector<int64_t> &shape,
                       const std::vector<int64_t> &stateShape, int64_t group) {
    const char *text;
    size_t size;
    ASSERT_OK(stepcPackageManifest(package.get(), &text, &size));
    InterfacePtr interface = loadInterface({text, size});
    int64_t options[2];
    const auto &[factored, min] = groups[size_t(group)];
    StepcOption given[] = {{"min", min}, {"factored", factored}};
    ASSERT_OK(
        stepcInterfaceResolve(interface.get(), given, 2, nullptr, 0, options));
    StepcTensorQuery query = makeQuery("w", shape, options);
    query.param = {kDLFloat, 32, 1};
    DescriptionPtr answer = describe(interface.get(), {query});
    const StepcTensorDescription &tensor = *answer->tensors[0];
    ASSERT_NE(nullptr, tensor.rule) << tensor.refusal;
    EXPECT_STREQ(rule, tensor.rule->name);
    ASSERT_EQ(1, tensor.numStates) << tensor.refusal;
    const StepcStateDescription &state = *tensor.states[0];
    EXPECT_STREQ(rule, state.name);
    EXPECT_EQ(stateShape,
              std::vector<int64_t>(state.shape, state.shape + state.ndim));
    EXPECT_EQ(stateShape,
              std::vector<int64_t>(state.part, state.part + state.partNdim));
  }

  PackagePtr package;
  PlanPtr plan;
  std::vector<std::pair<int64_t, int64_t>> groups; // factored, min
  std::vector<std::unique_ptr<Array>> params, grads;
};

TEST_F(RuleTest, firstThatHolds) {
  expect("square", {7, 7}, {7, 7});
  expect("matrix", {6, 6}, {1, 1});
  expect("column", {6, 1}, {6, 1});
  expect("column", {1, 1}, {1, 1});
  expect("matrix", {3, 2, 4}, {3, 1, 1});
  expect("matrix", {0, 2, 4}, {0, 1, 1});
  expect("line", {3, 2, 3}, {1});
  expect("line", {3, 1, 4}, {1});
  expect("line", {8}, {1});
  expect("line", {2, 2, 2, 4}, {1});
  expect("scalar", {}, {});
  expect("many", {9, 2, 2, 5}, {});
  expect("many", {9, 3}, {});
  // Of the group's options.
  expect("line", {6, 6}, {1}, 1);
  expect("square", {7, 7}, {7, 7}, 1);
  expect("line", {6, 6}, {1}, 2);
  ASSERT_OK(stepcStep(plan.get()));
}

TEST_F(RuleTest, none) {
  int64_t id = -3;
  EXPECT_REFUSED(
      STEPC_SHAPE_MISMATCH,
      "tensor 'w': no rule of optimizer 'ruled' takes shape [9]: 'square' has "
      "dims [n, n]; 'column' has dims [n, 1]; 'matrix' has dims [...b, n, m]; "
      "'line' needs extent 0 lt 9, it is 9; 'scalar' has dims []; 'many' needs "
      "rank ne 1, it is 1",
      bind({9}, 0, id));
  EXPECT_REFUSED(
      STEPC_SHAPE_MISMATCH,
      "tensor 'w': no rule of optimizer 'ruled' takes shape [9, 50]: 'square' "
      "has dims [n, n], with equal extents; 'column' has dims [n, 1]; 'matrix' "
      "needs extent -1 ge 100 (option 'min'), it is 50; 'line' needs extent 0 "
      "lt 9, it is 9; 'scalar' has dims []; 'many' needs option 'min' ne 100, "
      "it is 100",
      bind({9, 50}, 2, id));
  EXPECT_EQ(-3, id);
}

/// Options that are integers take any, others 0 and 1.
TEST_F(RuleTest, options) {
  StepcOption option = {"factored", 4};
  EXPECT_REFUSED(
      STEPC_INVALID_ARGUMENT, "option 'factored' is 4, neither 0 nor 1",
      stepcPlanAddGroup(plan.get(), &option, 1, nullptr, 0, nullptr));
  option = {"min", -3};
  ASSERT_OK(stepcPlanAddGroup(plan.get(), &option, 1, nullptr, 0, nullptr));
}

/// The storage is looked for among the variants of the rule.
TEST_F(RuleTest, storage) {
  Array param(Type::BF16, {8}), grad(Type::F32, {8});
  StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
  EXPECT_REFUSED(STEPC_DTYPE_MISMATCH,
                 "tensor 'w': the package has no variant for param bf16, grad "
                 "f32, it has: param f32, grad f32, state f32",
                 stepcPlanBind(plan.get(), &binding, 1, nullptr));
}

/// Of two extents, and of an extent that is not there.
json makeShapeManifest() {
  json manifest = makeHead("ruled");
  manifest["rules"] = json::array();
  manifest["options"] = {{{"name", "factored"}, {"default", true}},
                         {{"name", "min"}, {"default", 4}}};
  addRule(manifest, "tall", {"n", "m"},
          {{{"extent", -2}, {"predicate", "gt"}, {"other_extent", -1}}},
          {"n", "r"});
  manifest["rules"].back()["bound_dims"] = {{{"name", "r"},
                                             {"least_of", {"n", "m"}},
                                             {"option", "min"},
                                             {"most", 9},
                                             {"per", 2}}};
  addRule(manifest, "wide", {"n", "m"},
          {{{"extent", 2}, {"predicate", "le"}, {"other_extent", 0}}},
          {"m", "n"});
  addRule(manifest, "square", {"n", "m"}, json::array(), {"m", "m"});
  return manifest;
}

class ShapeTest : public RuleTest {
protected:
  void SetUp() override {
    package = loadManifest(makeShapeManifest());
    plan = makePlan(package.get());
    addGroup(1, 4);
    addGroup(1, 100);
    addGroup(1, 0);
  }
};

/// A state's dims are those of its names, in whatever place; what follows from
/// others is the least of them, in halves here.
TEST_F(ShapeTest, statesOfOtherDims) {
  expect("tall", {9, 8}, {9, 2});
  expect("tall", {9, 3}, {9, 2});
  expect("tall", {30, 20}, {30, 5}, 1);
  expect("tall", {30, 1}, {30, 1}, 1);
  expect("square", {3, 8}, {8, 8});
  expect("square", {5, 5}, {5, 5});
  expect("tall", {3, 0}, {3, 0}, 2);
}

TEST_F(ShapeTest, refusesADimOfNothing) {
  int64_t id;
  EXPECT_REFUSED(STEPC_SHAPE_MISMATCH,
                 "tensor 'w': dim 'r' of rule 'tall' is 0 for shape [9, 8] "
                 "with option 'min' = 0",
                 bind({9, 8}, 2, id));
}

} // namespace
