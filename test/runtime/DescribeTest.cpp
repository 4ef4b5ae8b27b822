//===- DescribeTest.cpp - what tensors would get ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// RuleTest asks about each tensor that it binds as well.
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

#include "stepc/codes.h"

#include <cmath>
#include <cstddef>

using namespace stepc_test;
using nlohmann::json;

namespace {

/// As the compiler prints it of a definition.
json makeInterface() {
  json text = {{"optimizer", "example"},
               {"hypers", {{{"name", "lr"}, {"default", 0.5}}}}};
  text["options"] = {
      {{"name", "factored"}, {"default", true}},
      {{"name", "min"}, {"default", 4}},
      {{"name", "moves"},
       {"derived", {{"hyper", "lr"}, {"predicate", "ne"}, {"value", 0.0}}}}};
  json all = {"...b", "n", "m"};
  text["rules"] = {
      {{"name", "matrix"},
       {"dims", all},
       {"guard", {{{"extent", -1}, {"predicate", "ge"}, {"option", "min"}}}},
       {"bound_dims",
        {{{"name", "r"}, {"least_of", {"n", "m"}}, {"most", 3}, {"per", 1}}}},
       {"cost",
        {{"flops",
          {{{"number", 2}, {"dims", {"...b", "n", "n", "m"}}},
           {{"number", 4},
            {"divisor", 3},
            {"period", 10},
            {"dims", {"...b", "n", "r"}}}}},
         {"bytes",
          {{{"number", 12}, {"dims", all}},
           {{"number", 8}, {"dims", {"1", "m", "r"}}, {"guard", "moves"}}}}}},
       {"unshardable",
        {{"dims", {"n", "flat range"}}, {"line", 7}, {"column", 3}}},
       {"states",
        {{{"name", "row"},
          {"dims", {"...b", "n", "1"}},
          {"init", 1.0},
          {"guard", nullptr}},
         {{"name", "low"},
          {"dims", {"...b", "m", "r"}},
          {"init", 0.0},
          {"guard", "moves"}},
         {{"name", "one"}, {"dims", {"1"}}, {"init", 0.0}},
         {{"name", "avg"}, {"dims", all}, {"init", 0.0}}}}}};
  return text;
}

std::vector<int64_t> listOf(const int64_t *first, int64_t size) {
  return {first, first + size};
}
std::vector<int64_t> listOf(const int32_t *first, int64_t size) {
  return {first, first + size};
}

void expectState(const StepcStateDescription &state, const char *name,
                 std::vector<int64_t> shape, std::vector<int64_t> part,
                 std::vector<int64_t> paramDims, double initialValue,
                 int exists) {
  EXPECT_STREQ(name, state.name);
  EXPECT_EQ(shape, listOf(state.shape, state.ndim)) << name;
  EXPECT_EQ(part, listOf(state.part, state.partNdim)) << name;
  EXPECT_EQ(paramDims, listOf(state.paramDims, state.ndim)) << name;
  EXPECT_EQ(initialValue, state.initialValue) << name;
  EXPECT_EQ(exists, state.exists) << name;
  EXPECT_EQ(std::string("avg") == name, state.isFull == 1) << name;
  EXPECT_EQ(0, state.dtype.bits) << name;
  EXPECT_EQ(0, state.bytes) << name;
}

class DescribeTest : public testing::Test {
protected:
  DescribeTest() : interface(loadInterface(makeInterface().dump())) {}

  std::vector<int64_t> resolve(std::vector<StepcOption> options, double lr) {
    std::vector<int64_t> values(3);
    EXPECT_STATUS(STEPC_OK,
                  stepcInterfaceResolve(interface.get(), options.data(),
                                        int64_t(options.size()), &lr, 1,
                                        values.data()));
    return values;
  }
  StepcStatus refuse(const StepcTensorQuery &query) {
    const StepcDescription *out = nullptr;
    StepcStatus status =
        stepcInterfaceDescribe(interface.get(), &query, 1, &out);
    EXPECT_EQ(nullptr, out);
    return status;
  }

  InterfacePtr interface;
};

TEST_F(DescribeTest, options) {
  using Values = std::vector<int64_t>;
  EXPECT_EQ((Values{1, 4, 1}), resolve({}, 0.5));
  EXPECT_EQ((Values{0, 9, 0}), resolve({{"min", 9}, {"factored", 0}}, 0.0));
  Values values(3);
  ASSERT_OK(stepcInterfaceResolve(interface.get(), nullptr, 0, nullptr, 0,
                                  values.data()));
  EXPECT_EQ((Values{1, 4, 1}), values);
  StepcOption option = {"moves", 1};
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "option 'moves' of optimizer 'example' follows from "
                 "hyper-parameter 'lr'",
                 stepcInterfaceResolve(interface.get(), &option, 1, nullptr, 0,
                                       values.data()));
  EXPECT_REFUSED(
      STEPC_INVALID_ARGUMENT, "outValues is NULL",
      stepcInterfaceResolve(interface.get(), nullptr, 0, nullptr, 0, nullptr));
}

TEST_F(DescribeTest, rulesAndStates) {
  std::vector<int64_t> options = resolve({}, 0.0), shape = {2, 5, 6};
  DescriptionPtr answer =
      describe(interface.get(), {makeQuery("w", shape, options.data())});
  interface.reset(); // the answer keeps what it points to
  ASSERT_EQ(1, answer->numTensors);
  const StepcTensorDescription &tensor = *answer->tensors[0];
  ASSERT_NE(nullptr, tensor.rule);
  const StepcRuleDescription &rule = *tensor.rule;
  EXPECT_STREQ("matrix", rule.name);
  ASSERT_EQ(3, rule.numDims);
  EXPECT_STREQ("...b", rule.dims[0]);
  ASSERT_EQ(1, rule.numUnshardable);
  EXPECT_STREQ("n", rule.unshardable[0]);
  EXPECT_EQ(1, rule.needsMatrices);
  EXPECT_EQ(7, rule.line);
  EXPECT_EQ(3, rule.column);
  EXPECT_EQ(-1, tensor.variant);
  EXPECT_EQ(nullptr, tensor.refusal);
  EXPECT_EQ(nullptr, tensor.cutDim);
  EXPECT_EQ(60, tensor.elements);
  ASSERT_EQ(4, tensor.numStates);
  expectState(*tensor.states[0], "row", {2, 5, 1}, {2, 5, 1}, {0, 1, -1}, 1, 1);
  expectState(*tensor.states[1], "low", {2, 6, 3}, {2, 6, 3}, {0, -1, -1}, 0,
              0);
  expectState(*tensor.states[2], "one", {1}, {1}, {-1}, 0, 1);
  expectState(*tensor.states[3], "avg", shape, shape, {0, 1, 2}, 0, 1);
}

TEST_F(DescribeTest, parts) {
  std::vector<int64_t> options = resolve({}, 0.5), shape = {5, 6};
  std::vector<int64_t> rows = {2, 6};
  StepcTensorQuery cut = makeQuery("w", shape, options.data());
  cut.part = rows.data();
  cut.shardedDims = 1;
  StepcTensorQuery range = makeQuery("v", shape, options.data());
  range.flat = 1;
  range.begin = 4;
  range.end = 11;
  DescriptionPtr answer = describe(interface.get(), {cut, range});
  EXPECT_STREQ("n", answer->tensors[0]->cutDim);
  EXPECT_EQ(12, answer->tensors[0]->elements);
  expectState(*answer->tensors[0]->states[0], "row", {5, 1}, {2, 1}, {0, -1}, 1,
              1);
  EXPECT_STREQ("flat range", answer->tensors[1]->cutDim);
  EXPECT_EQ(7, answer->tensors[1]->elements);
  expectState(*answer->tensors[1]->states[0], "row", {5, 1}, {5, 1}, {0, -1}, 1,
              1);
  expectState(*answer->tensors[1]->states[3], "avg", shape, {7}, {0, 1}, 0, 1);
}

/// What a step costs: exact numbers.
TEST_F(DescribeTest, costs) {
  for (auto [lr, moved] : {std::pair(0.5, 120.0), std::pair(0.0, 0.0)}) {
    std::vector<int64_t> options = resolve({}, lr), shape = {2, 3, 8, 5};
    DescriptionPtr answer =
        describe(interface.get(), {makeQuery("w", shape, options.data())});
    const StepcTensorDescription &tensor = *answer->tensors[0];
    // 2 b n n m, and 4/3 b n r in one of 10 steps; r is 3.
    EXPECT_DOUBLE_EQ(3840.0 + 19.2, tensor.flops);
    EXPECT_DOUBLE_EQ(3859.2 + 10.0 * (2880.0 + moved), tensor.cost);
  }
}

TEST(ChooseOwners, dearestFirst) {
  std::vector<double> costs = {3, 10, 5, 2, 4}, loads(3);
  std::vector<int64_t> owners(5);
  ASSERT_OK(stepcChooseOwners(costs.data(), 5, 3, nullptr, owners.data()));
  EXPECT_EQ((std::vector<int64_t>{2, 0, 1, 1, 2}), owners);
  ASSERT_OK(stepcChooseOwners(costs.data(), 2, 3, loads.data(), owners.data()));
  EXPECT_EQ((std::vector<double>{10, 3, 0}), loads);
  ASSERT_OK(stepcChooseOwners(costs.data(), 1, 3, loads.data(), owners.data()));
  EXPECT_EQ(2, owners[0]);
}

TEST(ChooseOwners, refused) {
  std::vector<double> costs = {3, -0.5}, loads = {1, NAN};
  std::vector<int64_t> owners(2);
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "0 ranks are to own tensors",
                 stepcChooseOwners(costs.data(), 1, 0, nullptr, owners.data()));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "2 tensors are to have owners, without a list",
                 stepcChooseOwners(costs.data(), 2, 3, nullptr, nullptr));
  EXPECT_REFUSED(
      STEPC_INVALID_ARGUMENT, "-1 tensors are to have owners",
      stepcChooseOwners(costs.data(), -1, 3, nullptr, owners.data()));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 1 costs -0.5, not a number from 0 on",
                 stepcChooseOwners(costs.data(), 2, 3, nullptr, owners.data()));
  EXPECT_REFUSED(
      STEPC_INVALID_ARGUMENT,
      "what is owned by rank 1 costs nan, not a number from 0 on",
      stepcChooseOwners(costs.data(), 1, 2, loads.data(), owners.data()));
}

TEST_F(DescribeTest, badCosts) {
  auto refuse = [](const char *key, json value, const char *message) {
    json text = makeInterface();
    text["rules"][0]["cost"]["flops"][1][key] = std::move(value);
    std::string bad = text.dump();
    StepcInterface *out = nullptr;
    std::string words = "the interface is corrupt: 'rules[0].cost.flops[1]";
    words += message;
    EXPECT_REFUSED(STEPC_CORRUPT_PACKAGE, words.c_str(),
                   stepcInterfaceLoad(bad.data(), bad.size(), &out));
  };
  refuse("divisor", 0, "' has a number below 1");
  refuse("period", 0, "' has a number below 1");
  refuse("dims", {"n", "k"},
         ".dims' has an element that is not a dim of the rule");
  refuse("dims", {7}, ".dims' has an element that is not a dim of the rule");
  refuse("guard", "other", ".guard' is not an option");
}

TEST_F(DescribeTest, noRule) {
  std::vector<int64_t> options = resolve({}, 0.5), shape = {5, 3};
  DescriptionPtr answer =
      describe(interface.get(), {makeQuery(nullptr, shape, options.data())});
  const StepcTensorDescription &tensor = *answer->tensors[0];
  EXPECT_EQ(nullptr, tensor.rule);
  EXPECT_EQ(0, tensor.numStates);
  EXPECT_EQ(STEPC_SHAPE_MISMATCH, tensor.status);
  EXPECT_STREQ("tensor 0: no rule of optimizer 'example' takes shape [5, 3]: "
               "'matrix' needs extent -1 ge 4 (option 'min'), it is 3",
               tensor.refusal);
}

/// From how many elements of the whole state on codes are kept.
TEST_F(DescribeTest, leastOfCodes) {
  std::vector<int64_t> options = resolve({}, 0.5), shape = {64, 65};
  const char *names[] = {"avg"};
  auto isCoded = [&](const int64_t *least, size_t size) {
    StepcTensorQuery query = makeQuery("w", shape, options.data());
    query.structSize = size;
    query.coded = names;
    query.numCoded = 1;
    query.least = least;
    DescriptionPtr answer = describe(interface.get(), {query});
    const StepcTensorDescription &tensor = *answer->tensors[0];
    const StepcStateDescription &state = *tensor.states[tensor.numStates - 1];
    EXPECT_STREQ("avg", state.name);
    return state.format == STEPC_STATE_Q8;
  };
  const size_t now = sizeof(StepcTensorQuery);
  const int64_t none = 0, own = 4160, more = 4161;
  EXPECT_TRUE(isCoded(nullptr, now));
  EXPECT_TRUE(isCoded(&none, now));
  EXPECT_TRUE(isCoded(&own, now));
  EXPECT_FALSE(isCoded(&more, now));
  EXPECT_TRUE(isCoded(&more, offsetof(StepcTensorQuery, least)));
  shape = {64, 63};
  const int64_t fewer = 4032;
  EXPECT_FALSE(isCoded(&none, now));
  EXPECT_TRUE(isCoded(&fewer, now));
  StepcTensorQuery query = makeQuery("w", shape, options.data());
  const int64_t negative = -5;
  query.coded = names;
  query.numCoded = 1;
  query.least = &negative;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 'w': state 'avg' is coded from -5 elements on",
                 refuse(query));
}

TEST_F(DescribeTest, refused) {
  std::vector<int64_t> options = resolve({}, 0.5), shape = {5, 6};
  const StepcTensorQuery good = makeQuery("w", shape, options.data());
  StepcTensorQuery query = good;
  query.options = nullptr;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 'w' has no values of the 3 options of optimizer "
                 "'example'",
                 refuse(query));
  query = good;
  query.shardedDims = 4;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 'w': shardedDims names a dim beyond the 2 of its "
                 "shape",
                 refuse(query));
  query = good;
  std::vector<int64_t> part = {2, 6};
  query.part = part.data();
  EXPECT_REFUSED(STEPC_SHAPE_MISMATCH,
                 "tensor 'w': a part of shape [2, 6] is not one of shape [5, "
                 "6] that ranks share",
                 refuse(query));
  part = {5, 3};
  query.shardedDims = 2;
  query.begin = 16;
  EXPECT_REFUSED(STEPC_SHAPE_MISMATCH,
                 "tensor 'w': a part of 15 elements from 16 on is not inside "
                 "the 30 of shape [5, 6]",
                 refuse(query));
  query = good;
  query.flat = 1;
  query.end = 31;
  EXPECT_REFUSED(STEPC_SHAPE_MISMATCH,
                 "tensor 'w': elements from 0 to 31 are not inside the 30 of "
                 "shape [5, 6]",
                 refuse(query));
  query = good;
  query.rounds = 2;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 'w': rounds is 2, neither 0 nor 1", refuse(query));
  query = good;
  query.reserved = 3;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 'w': a reserved field is 3, not 0", refuse(query));
  query = good;
  query.structSize = 8;
  EXPECT_STATUS(STEPC_INVALID_ARGUMENT, refuse(query));
  const StepcDescription *out = nullptr;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "1 tensors were asked about, without a list",
                 stepcInterfaceDescribe(interface.get(), nullptr, 1, &out));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "interface is NULL",
                 stepcInterfaceDescribe(nullptr, nullptr, 0, &out));
  ASSERT_OK(stepcInterfaceDescribe(interface.get(), nullptr, 0, &out));
  EXPECT_EQ(0, out->numTensors);
  stepcDescriptionDestroy(out);
  stepcDescriptionDestroy(nullptr);
  stepcInterfaceDestroy(nullptr);
}

TEST_F(DescribeTest, badText) {
  json text = makeInterface();
  text["rules"][0]["states"][0]["dims"] = {"n"};
  std::string bad = text.dump();
  StepcInterface *out = nullptr;
  EXPECT_REFUSED(STEPC_CORRUPT_PACKAGE,
                 "the interface is corrupt: 'rules[0].states[0].dims' does not "
                 "follow from the rule's",
                 stepcInterfaceLoad(bad.data(), bad.size(), &out));
  EXPECT_REFUSED(STEPC_CORRUPT_PACKAGE,
                 "the interface is corrupt: '' is not an object in JSON",
                 stepcInterfaceLoad("[]", 2, &out));
  json manifest = makeToyManifest();
  manifest["format"] = 3;
  bad = manifest.dump();
  EXPECT_REFUSED(STEPC_VERSION_MISMATCH,
                 "the interface has format 3, this runtime reads format 5",
                 stepcInterfaceLoad(bad.data(), bad.size(), &out));
  EXPECT_EQ(nullptr, out);
}

/// Of a package: by storage types, and by what is kept of a parameter.
TEST(DescribeVariantTest, types) {
  json manifest = makeToyManifest();
  InterfacePtr interface = loadInterface(manifest.dump());
  std::vector<int64_t> shape = {3, 4};
  std::vector<int64_t> options(manifest["options"].size());
  ASSERT_OK(stepcInterfaceResolve(interface.get(), nullptr, 0, nullptr, 0,
                                  options.data()));
  StepcTensorQuery query = makeQuery("w", shape, options.data());
  query.param = {kDLBfloat, 16, 1};
  StepcTensorQuery wide = query;
  wide.grad = {kDLFloat, 64, 1};
  StepcTensorQuery kept = query;
  kept.master = "master";
  DescriptionPtr answer = describe(interface.get(), {query, wide, kept});
  const StepcTensorDescription &found = *answer->tensors[0];
  ASSERT_LE(0, found.variant) << found.refusal;
  const json &variant = manifest["variants"][size_t(found.variant)];
  EXPECT_EQ("bf16", variant["operands"][0]["storage"]);
  EXPECT_EQ(12, found.elements);
  for (int64_t i = 0; i < found.numStates; ++i) {
    const StepcStateDescription &state = *found.states[i];
    EXPECT_EQ(12 * state.dtype.bits / 8, state.bytes) << state.name;
    EXPECT_EQ(shape, listOf(state.shape, state.ndim)) << state.name;
  }
  for (int i : {1, 2}) {
    EXPECT_EQ(-1, answer->tensors[i]->variant);
    EXPECT_EQ(STEPC_DTYPE_MISMATCH, answer->tensors[i]->status);
    EXPECT_NE(nullptr, answer->tensors[i]->rule);
  }
  EXPECT_EQ(0u, std::string(answer->tensors[1]->refusal)
                    .find("tensor 'w': the package has no variant for param "
                          "bf16, grad f64, it has: "));
  EXPECT_NE(std::string::npos, std::string(answer->tensors[2]->refusal)
                                   .find(", state 'master', it has: "));
  query.param = {kDLInt, 64, 1};
  const StepcDescription *out = nullptr;
  EXPECT_REFUSED(STEPC_DTYPE_MISMATCH,
                 "tensor 'w': parameter has dtype i64, known are f32, f64, "
                 "bf16 and f16",
                 stepcInterfaceDescribe(interface.get(), &query, 1, &out));
}

} // namespace
