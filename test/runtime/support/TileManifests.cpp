//===- TileManifests.cpp - manifests of several phases ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/PackageWriter.h"

using namespace stepc_test;
using nlohmann::json;

static json makeKernel(const std::string &name, int segment,
                       std::vector<int> reads, std::vector<int> writes) {
  return {{"kernel", name},
          {"strided_kernel", name + "_strided"},
          {"segment", segment},
          {"reads", reads},
          {"writes", writes}};
}

static json makeFinish(const std::string &name, int segment) {
  return {{"finish", name}, {"segment", segment}};
}

static json makeBuffer(const char *name, std::vector<const char *> size,
                       int bytes, bool live = false) {
  return {{"name", name}, {"size", size}, {"bytes", bytes}, {"live", live}};
}

static json makeVariant(const char *name, const char *rule) {
  return {{"name", name},     {"rule", rule},     {"options", json::object()},
          {"compute", "f32"}, {"space", "tiles"}, {"layout", json::object()},
          {"rounds", false},  {"subsets", true}};
}

json stepc_test::makeLambManifest() {
  json manifest = makeHead("lamb");
  manifest["hypers"] = {{{"name", "lr"}, {"default", 0.01}},
                        {{"name", "decay"}, {"default", 0.1}}};
  json variant = makeVariant("lamb_f32", "any");
  variant["operands"] = {makeOperand("param", "param", "f32", true, true),
                         makeOperand("grad", "grad", "f32", true, false),
                         makeOperand("state", "moment", "f32", true, true)};
  variant["scalars"] = {{"functions", {"lamb_scalars"}}, {"slots", 2}};
  variant["fresh"] = json::array({json::array()});
  variant["tensor_slots"] = 4;
  variant["workspace"] = {makeBuffer("weight", {"*/1024"}, 8),
                          makeBuffer("update", {"*/1024"}, 8)};
  json last = makeKernel("lamb_phase1", 0, {0, 2}, {0});
  last["unless_slot"] = 3;
  setSchedule(variant, {makeKernel("lamb_phase0", 0, {0, 1, 2}, {2}),
                        makeFinish("lamb_finish0", 0), last});
  manifest["variants"].push_back(variant);
  return manifest;
}

json stepc_test::makeFactorManifest() {
  json manifest = makeHead("factor");
  manifest["hypers"] = {{{"name", "lr"}, {"default", 0.01}}};
  const json dims = {"...b", "n", "m"};
  manifest["rules"][0]["name"] = "matrix";
  manifest["rules"][0]["dims"] = dims;
  json variant = makeVariant("factor_f32", "matrix");
  variant["operands"] = {
      makeOperand("param", "param", "f32", true, true, dims),
      makeOperand("grad", "grad", "f32", true, false, dims),
      makeOperand("state", "rows", "f32", true, true, {"...b", "n", "1"}),
      makeOperand("state", "columns", "f32", true, true, {"...b", "1", "m"})};
  variant["operands"][3]["init"] = 0.25;
  variant["scalars"] = {{"functions", {"factor_scalars"}}, {"slots", 1}};
  variant["fresh"] = json::array({json::array()});
  variant["tensor_slots"] = 0;
  variant["workspace"] = {makeBuffer("rows", {"...b", "n", "m/1024"}, 8),
                          makeBuffer("columns", {"...b", "n/64", "m"}, 8)};
  setSchedule(variant, {makeKernel("factor_phase0", 0, {1}, {}),
                        makeFinish("factor_finish0", 0),
                        makeKernel("factor_phase1", 0, {0, 1, 2, 3}, {0})});
  manifest["variants"].push_back(variant);
  return manifest;
}

static json makeContribution(int statistic, int slot, int segment,
                             const json &partial = json::array()) {
  return {{"exchange", "statistic"},
          {"statistic", statistic},
          {"slot", slot},
          {"segment", segment},
          {"partial", partial}};
}

/// What crosses in round 0: over these dims of the rule where dims are sharded.
static json makeCrossing(int buffer, const char *op,
                         std::vector<const char *> dims, const json &layout) {
  if (layout.contains("flat range"))
    dims = {"flat range"};
  return {{"exchange", "buffer"},
          {"buffer", buffer},
          {"segment", 0},
          {"dims", dims},
          {"op", op}};
}

static json makeShareVariant(const std::string &name, const json &layout) {
  const json dims = {"...b", "n", "m"};
  json variant = makeVariant(name.c_str(), "matrix");
  variant["layout"] = layout;
  variant["operands"] = {
      makeOperand("param", "param", "f32", true, true, dims),
      makeOperand("grad", "grad", "f32", true, false, dims),
      makeOperand("state", "rows", "f32", true, true, {"...b", "n", "1"})};
  variant["scalars"] = {{"functions", {"share_scalars"}}, {"slots", 1}};
  variant["fresh"] = json::array({json::array()});
  variant["tensor_slots"] = 4;
  variant["workspace"] = {makeBuffer("rows", {"...b", "n"}, 8, true),
                          makeBuffer("columns", {"...b", "m"}, 8, true),
                          makeBuffer("total", {}, 8, true),
                          makeBuffer("largest", {}, 8, true)};
  json part = json::array();
  for (const auto &[dim, axes] : layout.items())
    part.push_back(dim);
  std::vector<json> schedule = {makeFinish("share_finish0", 0),
                                makeFinish("share_finish1", 1),
                                makeKernel("share_phase1", 1, {0, 1, 2}, {0})};
  if (!layout.empty())
    schedule.insert(schedule.end(),
                    {makeCrossing(0, "sum", {"m"}, layout),
                     makeCrossing(1, "sum", {"n"}, layout),
                     makeCrossing(2, "sum", {"...b", "n", "m"}, layout),
                     makeCrossing(3, "amax", {"...b", "n", "m"}, layout)});
  schedule.insert(schedule.end(),
                  {makeContribution(0, 0, 0, part),
                   makeContribution(1, 1, 0, part), makeContribution(2, 2, 1)});
  setSchedule(variant, schedule);
  variant["subsets"] = false;
  return variant;
}

json stepc_test::makeShareManifest() {
  json manifest = makeHead("share");
  manifest["hypers"] = {{{"name", "lr"}, {"default", 0.25}}};
  manifest["rules"][0]["name"] = "matrix";
  manifest["rules"][0]["dims"] = {"...b", "n", "m"};
  auto statistic = [](const char *name, const char *kind) {
    return json{{"name", name}, {"kind", kind}, {"scope", "model"}};
  };
  manifest["statistics"] = {statistic("norm2", "sum"),
                            statistic("largest", "amax"),
                            statistic("totals", "sum")};
  auto round = [](const char *function, std::vector<int> results) {
    json call = {{"function", function},    {"scope", "model"},
                 {"hypers", json::array()}, {"options", json::array()},
                 {"results", results},      {"may_skip", false},
                 {"updates", json::array()}};
    return json{{"calls", json::array({call})}};
  };
  manifest["rounds"] = {round("share_round0", {0, 1}),
                        round("share_round1", {2})};
  manifest["results"] = 3;
  for (int i = 0; i < 3; ++i)
    manifest["reports"].push_back(
        {{"name", manifest["statistics"][size_t(i)]["name"]},
         {"scope", "model"},
         {"result", i}});
  const json axes = {"x"};
  for (const char *dims : {"", "n", "m", "nm", "b", "bn", "f"}) {
    json layout = json::object();
    for (const char *dim = dims; *dim; ++dim)
      layout[*dim == 'b'   ? "...b"
             : *dim == 'f' ? "flat range"
                           : std::string(1, *dim)] = axes;
    manifest["variants"].push_back(
        makeShareVariant(std::string("share_") + dims, layout));
  }
  return manifest;
}

static void addClipRounds(json &manifest) {
  manifest["scalars"] = {
      {{"name", "scale"}, {"default", 8.0}, {"scope", "model"}},
      {{"name", "d"}, {"default", 0.5}, {"scope", "group"}},
      {{"name", "steps"}, {"default", 0.0}, {"scope", "model"}}};
  auto statistic = [](const char *name, const char *kind, const char *scope) {
    return json{{"name", name}, {"kind", kind}, {"scope", scope}};
  };
  manifest["statistics"] = {
      statistic("norm2", "sum", "model"), statistic("largest", "amax", "model"),
      statistic("total", "sum", "group"), statistic("moved", "sum", "model")};
  auto call = [](const char *function, const char *scope,
                 std::vector<int> hypers, std::vector<int> results,
                 json updates) {
    return json{{"function", function},
                {"scope", scope},
                {"hypers", hypers},
                {"options", json::array()},
                {"results", results},
                {"may_skip", function == std::string("clip_round0_model")},
                {"updates", updates}};
  };
  json first = call(
      "clip_round0_model", "model", {1}, {0, 1},
      {{{"scalar", 0}, {"always", true}}, {{"scalar", 2}, {"always", false}}});
  json second = call("clip_round0_group", "group", {}, {2},
                     json::array({{{"scalar", 1}, {"always", false}}}));
  json third = call("clip_round1", "model", {}, {3}, json::array());
  manifest["rounds"] = json::array();
  manifest["rounds"].push_back({{"calls", {first, second}}});
  manifest["rounds"].push_back({{"calls", json::array({third})}});
  manifest["results"] = 4;
  manifest["reports"] = {
      {{"name", "grad_norm"}, {"scope", "model"}, {"result", 1}},
      {{"name", "step_d"}, {"scope", "group"}, {"result", 2}},
      {{"name", "factor"}, {"scope", "model"}, {"result", 3}}};
}

/// Clip adds up each tensor by itself, so that its tiles program serves parts.
json stepc_test::makeShardedClipManifest() {
  json manifest = makeClipManifest();
  for (const char *dim : {"*", "flat range"}) {
    json variant = manifest["variants"][0];
    variant["name"] = std::string("clip_") + dim;
    variant["layout"] = {{dim, {"x"}}};
    for (json &entry : variant["schedule"])
      if (entry.contains("partial"))
        entry["partial"] = json::array({dim});
    manifest["variants"].push_back(variant);
  }
  return manifest;
}

json stepc_test::makeClipManifest() {
  json manifest = makeHead("clip");
  manifest["hypers"] = {{{"name", "lr"}, {"default", 0.25}},
                        {{"name", "max_norm"}, {"default", 1.0}}};
  addClipRounds(manifest);
  json variant = makeVariant("clip_f32", "any");
  variant["operands"] = {makeOperand("param", "param", "f32", true, true),
                         makeOperand("grad", "grad", "f32", true, false)};
  json functions = {"clip_scalars0", "clip_scalars1", "clip_scalars2"};
  variant["scalars"] = {{"functions", functions}, {"slots", 4}};
  variant["fresh"] = json::array({json::array()});
  variant["tensor_slots"] = 5;
  variant["workspace"] = {makeBuffer("norm2", {"*/1024"}, 8),
                          makeBuffer("total", {"*/1024"}, 8),
                          makeBuffer("largest", {"*/1024"}, 8),
                          makeBuffer("update", {"*"}, 4, true)};
  setSchedule(
      variant,
      {makeKernel("clip_phase0", 0, {1}, {}), makeFinish("clip_finish0", 0),
       makeKernel("clip_phase1", 1, {1}, {}), makeFinish("clip_finish1", 1),
       makeFinish("clip_finish2", 2), makeKernel("clip_phase2", 2, {0}, {0}),
       makeContribution(0, 0, 0), makeContribution(1, 2, 0),
       makeContribution(2, 1, 0), makeContribution(3, 3, 1)});
  variant["subsets"] = false;
  manifest["variants"].push_back(variant);

  json elements = makeVariant("clip_f64", "any");
  elements["operands"] = {makeOperand("param", "param", "f64", true, true),
                          makeOperand("grad", "grad", "f64", true, false)};
  elements["scalars"] = variant["scalars"];
  addKernel(elements, "clip_elements", "clip_elements");
  elements["schedule"][0]["segment"] = 2;
  elements["subsets"] = false;
  manifest["variants"].push_back(elements);
  return manifest;
}
