//===- ManifestTest.cpp - manifests that are refused ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

using namespace stepc_test;
using nlohmann::json;

namespace {

void refuse(StepcStatus status, const std::string &message, const json &value,
            const char *file = STEPC_TEST_KERNELS) {
  std::string bytes = makePackage(value, readFile(file));
  StepcPackage *package = nullptr;
  EXPECT_REFUSED(status, message.c_str(),
                 stepcPackageLoadBytes(bytes.data(), bytes.size(), &package));
}

/// Changes a good manifest at a JSON pointer; null removes.
void refuseAt(const char *pointer, const json &value, const char *message,
              json manifest = makeToyManifest()) {
  json::json_pointer at(pointer);
  json &parent = manifest.at(at.parent_pointer());
  if (value.is_null() && parent.is_array())
    parent.erase(size_t(std::stoi(at.back())));
  else if (value.is_null())
    parent.erase(at.back());
  else
    manifest[at] = value;
  refuse(STEPC_CORRUPT_PACKAGE,
         "package '<memory>' is corrupt: manifest.json: " +
             std::string(message),
         manifest);
}

TEST(Manifest, versions) {
  json manifest = makeToyManifest();
  manifest["format"] = 1;
  refuse(STEPC_VERSION_MISMATCH,
         "package '<memory>' has format 1, this runtime reads format 5",
         manifest);
  // Whatever else there may be in a later format.
  refuse(STEPC_VERSION_MISMATCH,
         "package '<memory>' has format 7, this runtime reads format 5",
         {{"format", 7}, {"variants", "elsewhere"}});
  manifest["format"] = 5;
  manifest["kernel_abi"] = 13;
  refuse(
      STEPC_VERSION_MISMATCH,
      "package '<memory>' has kernel_abi 13, this runtime reads kernel_abi 12",
      manifest);
}

TEST(Manifest, notJson) {
  for (std::string text : {"", "[", "[]", "\xff", "{\"format\": 1,}"}) {
    std::string bytes = sign(makeZip({{"manifest.json", text}}));
    StepcPackage *package = nullptr;
    EXPECT_REFUSED(
        STEPC_CORRUPT_PACKAGE,
        "package '<memory>' is corrupt: manifest.json: '' is not an object in "
        "JSON",
        stepcPackageLoadBytes(bytes.data(), bytes.size(), &package));
  }
  // Depth alone must not overflow the stack.
  std::string deep =
      sign(makeZip({{"manifest.json", std::string(1000000, '[')}}));
  StepcPackage *package = nullptr;
  EXPECT_STATUS(STEPC_CORRUPT_PACKAGE,
                stepcPackageLoadBytes(deep.data(), deep.size(), &package));
  std::string closed = "{\"format\": 1, \"x\": " + std::string(100000, '[') +
                       std::string(100000, ']') + "}";
  std::string bytes = sign(makeZip({{"manifest.json", closed}}));
  EXPECT_STATUS(STEPC_CORRUPT_PACKAGE,
                stepcPackageLoadBytes(bytes.data(), bytes.size(), &package));
}

TEST(Manifest, head) {
  refuseAt("/format", nullptr, "'format' is missing");
  refuseAt("/format", "1", "'format' is not an integer");
  refuseAt("/format", 1.0, "'format' is not an integer");
  refuseAt("/kernel_abi", nullptr, "'kernel_abi' is missing");
  refuseAt("/optimizer", 3, "'optimizer' is not a string, or empty");
  refuseAt("/optimizer", "", "'optimizer' is not a string, or empty");
  refuseAt("/hypers", json::object(), "'hypers' is not a list");
  refuseAt("/hypers/1", 5, "'hypers[1].name' is missing");
  refuseAt("/hypers/1/default", "x", "'hypers[1].default' is not a number");
  refuseAt("/hypers/1/name", "lr", "'hypers' has a name twice");
  refuseAt("/rules", json::array(), "'rules' is empty");
  refuseAt("/code", json::array(), "'code' is empty");
  refuseAt("/code/0/target", nullptr, "'code[0].target' is missing");
  refuseAt("/code/0/cpu_features", "avx",
           "'code[0].cpu_features' is not a list");
  refuseAt("/code/0/cpu_features/0", 1,
           "'code[0].cpu_features' has an element that is not a string");
}

TEST(Manifest, options) {
  refuseAt("/options/0/default", 0.5,
           "'options[0].default' is neither a boolean nor an integer");
  refuseAt("/options/0/default", nullptr, "'options[0].default' is missing");
  refuseAt("/options/1/name", "maximize", "'options' has a name twice");
  refuseAt("/options/1/derived", 1, "'options[1].derived' is not an object");
  refuseAt("/options/1/derived/hyper", "beta",
           "'options[1].derived.hyper' is not a hyper-parameter");
  refuseAt("/options/1/derived/predicate", "about",
           "'options[1].derived.predicate' is not a predicate");
  refuseAt("/options/1/derived/value", "0",
           "'options[1].derived.value' is not a number");
}

TEST(Manifest, variants) {
  refuseAt("/variants", json::array(), "'variants' is empty");
  refuseAt("/variants/1/name", "toy_f32_momentum",
           "'variants' has a name twice");
  refuseAt("/variants/0/rule", "matrix", "'variants[0].rule' is not a rule");
  refuseAt("/variants/0/options/maximize", nullptr,
           "'variants[0].options.maximize' is missing");
  refuseAt("/variants/0/options/maximize", 1,
           "'variants[0].options.maximize' is not true or false");
  refuseAt("/variants/0/options/other", true,
           "'variants[0].options' names an option that does not exist");
  refuseAt("/variants/0/fresh", nullptr, "'variants[0].fresh' is missing");
  refuseAt("/variants/0/fresh", json(65, json::array()),
           "'variants[0].fresh' has more than 64 elements");
  refuseAt("/variants/0/fresh/0", 1, "'variants[0].fresh[0]' is not an array");
  for (const json &name : {json("param"), json("absent"), json(1)})
    refuseAt("/variants/0/fresh/0", json::array({name}),
             "'variants[0].fresh[0]' names something that is no state");
  refuseAt("/variants/0/scalars", nullptr, "'variants[0].scalars' is missing");
  for (const json &slots : {json(-1), json(1.5), json(1e9)})
    refuseAt("/variants/0/scalars/slots", slots,
             "'variants[0].scalars.slots' is not an integer from 0 to 65536");
  refuseAt("/variants/0/schedule/0/kernel", nullptr,
           "'variants[0].schedule[0].kernel' is missing");
  refuseAt("/variants/0/schedule/0/strided_kernel", nullptr,
           "'variants[0].schedule[0].strided_kernel' is missing");
  refuseAt("/variants/0/subsets", 1,
           "'variants[0].subsets' is not true or false");
}

TEST(Manifest, operands) {
  refuseAt("/variants/0/operands/0/role", "weight",
           "'variants[0].operands[0].role' is not a role");
  refuseAt("/variants/0/operands/2/role", "param",
           "'variants[0].operands' does not have one parameter and one "
           "gradient");
  refuseAt("/variants/0/operands/0/storage", "f8",
           "'variants[0].operands[0].storage' is not a storage type");
  refuseAt("/variants/0/operands/1/writes", true,
           "'variants[0].operands[1].writes' is true for a gradient");
  refuseAt("/variants/0/operands/2/init", nullptr,
           "'variants[0].operands[2].init' is missing");
  refuseAt("/variants/0/operands/2/dims", nullptr,
           "'variants[0].operands[2].dims' is missing");
  refuseAt("/variants/0/operands/2/name", "grad",
           "'variants[0].operands' has a name twice");
  refuseAt("/variants/0/operands/1", nullptr,
           "'variants[0].operands' does not have one parameter and one "
           "gradient");
}

void refuseClip(const char *pointer, const json &value, const char *message) {
  refuseAt(pointer, value, message, makeClipManifest());
}

TEST(Manifest, rules) {
  refuseAt("/rules/0/dims", nullptr, "'rules[0].dims' is missing");
  refuseAt("/rules/0/dims", {"a", "b", "c", "d", "e"},
           "'rules[0].dims' has more than four dims besides leading ones");
  refuseAt("/rules/0/dims", {"*", "m"},
           "'rules[0].dims' has '*' beside other dims");
  refuseAt("/rules/0/dims", {"m", "...b"},
           "'rules[0].dims' has leading dims that do not stand first");
  refuseAt("/rules/0/dims", {1},
           "'rules[0].dims' has an element that is not a string, or empty");
  refuseAt("/rules/0/guard", nullptr, "'rules[0].guard' is missing");
  refuseAt("/rules/0/guard", {{{"rank", false}}},
           "'rules[0].guard[0].rank' is not true");
  refuseAt("/rules/0/guard", {{{"extent", "m"}}},
           "'rules[0].guard[0].extent' is not an integer");
  refuseAt("/rules/0/guard", {{{"option", "factored"}}},
           "'rules[0].guard[0].option' is not an option");
  refuseAt("/rules/0/guard", {{{"extent", 0}, {"predicate", "ge"}}},
           "'rules[0].guard[0].value' is missing");
  refuseAt(
      "/rules/0/guard",
      {{{"rank", true},
        {"predicate", "ge"},
        {"value", 1},
        {"option", "maximize"}}},
      "'rules[0].guard[0]' compares with an option and with something else");
  refuseAt(
      "/rules/0/guard",
      {{{"extent", 0}, {"predicate", "ge"}, {"value", 1}, {"other_extent", 1}}},
      "'rules[0].guard[0]' compares with an extent and a value");
  refuseAt("/rules/0/unshardable", {{"dims", {1}}},
           "'rules[0].unshardable.dims' has an element that is not a string");
  json state = {{"name", "m"}, {"dims", {"n"}}, {"init", 0.0}};
  refuseAt("/rules/0/states", json::array({state}),
           "'rules[0].states[0].dims' does not follow from the rule's");
  state["dims"] = {"*"};
  state["guard"] = "nesterov";
  refuseAt("/rules/0/states", json::array({state}),
           "'rules[0].states[0].guard' is not an option");
  state["guard"] = nullptr;
  refuseAt("/rules/0/states", json::array({state, state}),
           "'rules[0].states' has a name twice");
  json twice = makeToyManifest()["rules"];
  twice.push_back(twice[0]);
  refuseAt("/rules", twice, "'rules' has a name twice");
}

TEST(Manifest, boundDims) {
  const json good = {{"name", "r"}, {"least_of", {"n", "m"}}, {"per", 1}};
  auto refuse = [&](const char *key, const json &value, const char *message) {
    json dim = good;
    dim[key] = value;
    refuseAt("/rules/0/bound_dims", json::array({dim}), message,
             makeFactorManifest());
  };
  refuse("name", "m", "'rules[0].bound_dims[0].name' is no new dim");
  refuse("name", "1", "'rules[0].bound_dims[0].name' is no new dim");
  for (const char *dim : {"k", "...b", "1"})
    refuse("least_of", {dim},
           "'rules[0].bound_dims[0].least_of' has an element that is no single "
           "dim of the rule");
  refuse("least_of", json::array(),
         "'rules[0].bound_dims[0].least_of' is empty");
  refuse("per", 0, "'rules[0].bound_dims[0]' has a number below 1");
  refuse("most", 0, "'rules[0].bound_dims[0]' has a number below 1");
  refuse("option", "rank", "'rules[0].bound_dims[0].option' is not an option");
  json four = json::array();
  for (const char *name : {"a", "c", "d", "e"}) {
    four.push_back(good);
    four.back()["name"] = name;
  }
  refuseAt("/rules/0/bound_dims", four,
           "'rules[0].bound_dims' has more than three dims",
           makeFactorManifest());
}

TEST(Manifest, rounds) {
  for (const char *key :
       {"scalars", "statistics", "rounds", "reports", "results"})
    refuseClip((std::string("/") + key).c_str(), nullptr,
               ("'" + std::string(key) + "' is missing").c_str());
  refuseClip("/scalars/1/scope", "tensor",
             "'scalars[1].scope' is neither model nor group");
  refuseClip("/scalars/1/name", "scale", "'scalars' has a name twice");
  refuseClip("/statistics/0/kind", "mean",
             "'statistics[0].kind' is neither sum nor amax");
  refuseClip("/statistics/1/name", "norm2", "'statistics' has a name twice");
  refuseClip("/results", 3, "'rounds[1].calls[0].results[0]' is not a result");
  refuseClip("/results", 5, "'results' counts a result that no call writes");
  refuseClip("/results", -1, "'results' is not an integer from 0 to 65536");
  refuseClip("/rounds/0/calls/0/hypers/0", 2,
             "'rounds[0].calls[0].hypers[0]' is not a hyper-parameter");
  refuseClip("/rounds/0/calls/0/options", {0},
             "'rounds[0].calls[0].options[0]' is not an option");
  refuseClip("/rounds/0/calls/0/results/1", 0,
             "'rounds[0].calls[0].results[1]' comes twice");
  refuseClip("/rounds/0/calls/1/results/0", 0,
             "'rounds[0].calls[1].results' names a result of another call");
  refuseClip("/rounds/0/calls/1/may_skip", nullptr,
             "'rounds[0].calls[1].may_skip' is missing");
  refuseClip("/rounds/0/calls/1/updates/0/scalar", 0,
             "'rounds[0].calls[1].updates[0].scalar' has another scope than "
             "the call");
  refuseClip("/rounds/0/calls/0/updates/1/scalar", 0,
             "'rounds[0].calls[0].updates[1].scalar' is updated twice");
  refuseClip("/reports/0/result", 4, "'reports[0].result' is not a result");
  refuseClip("/reports/0/scope", "group",
             "'reports[0].scope' is another one than its result's");
  refuseClip("/reports/1/name", "grad_norm", "'reports' has a name twice");
}

TEST(Manifest, kindsOfEntries) {
  for (std::string kind : {"call", "copy"})
    refuseClip(("/variants/0/schedule/1/" + kind).c_str(), "clip_finish0",
               ("'variants[0].schedule[1]' is an entry of kind '" + kind +
                "', which this runtime does not read")
                   .c_str());
}

TEST(Manifest, schedules) {
  refuseClip("/variants/0/schedule", json::array(),
             "'variants[0].schedule' is empty");
  refuseClip("/variants/0/schedule/1/segment", 3,
             "'variants[0].schedule[1].segment' is not a segment");
  refuseClip("/variants/0/schedule/1/segment", 2,
             "'variants[0].schedule[2].segment' is below the one before it");
  refuseClip("/variants/0/schedule/0/reads/0", 2,
             "'variants[0].schedule[0].reads[0]' is not an operand");
  refuseClip("/variants/0/schedule/9/writes/0", 1,
             "'variants[0].schedule[9].writes' names the gradient");
  refuseClip("/variants/0/schedule/0/unless_slot", 5,
             "'variants[0].schedule[0].unless_slot' is not a slot");
  refuseClip("/variants/0/schedule/0/writes", {0},
             "'variants[0].schedule[0].writes' names operands before a round "
             "that may skip the step");
  refuseClip("/variants/0/subsets", true,
             "'variants[0].subsets' is true for several segments");
  refuseClip("/variants/0/scalars/functions", {"a", nullptr, "b", "c"},
             "'variants[0].scalars.functions' has more elements than segments");
  refuseClip("/variants/0/scalars/functions", {0},
             "'variants[0].scalars.functions' has an element that is neither a "
             "string nor null");
  refuseClip("/variants/0/carried",
             json::parse(R"([{"slot": 5, "recomputed": 0}])"),
             "'variants[0].carried[0].slot' is not a slot");
  refuseClip("/variants/0/carried", json::parse(R"([{"slot": 0}])"),
             "'variants[0].carried[0].recomputed' is missing");
  refuseClip("/variants/0/schedule/2/slot", 5,
             "'variants[0].schedule[2].slot' is not a slot");
  refuseClip("/variants/0/schedule/2/statistic", 4,
             "'variants[0].schedule[2].statistic' is not a statistic");
  refuseClip("/variants/0/schedule/3/statistic", 0,
             "'variants[0].schedule[3].statistic' is contributed to "
             "twice");
  refuseClip("/variants/0/schedule/7/segment", 2,
             "'variants[0].schedule[7].segment' has no round after it");
}

TEST(Manifest, layouts) {
  refuseClip("/variants/0/layout", nullptr, "'variants[0].layout' is missing");
  refuseClip("/variants/0/layout", json::array(),
             "'variants[0].layout' is not an object");
  refuseClip("/variants/0/layout", {{"n", {"dp"}}},
             "'variants[0].layout.n' is not a dim of the rule");
  refuseClip("/variants/0/layout", {{"*", "dp"}},
             "'variants[0].layout.*' is not a list");
  refuseClip("/variants/0/layout", {{"*", {1}}},
             "'variants[0].layout.*' has an element that is not a string, or "
             "empty");
  refuseClip("/variants/0/layout", {{"*", json::array()}},
             "'variants[0].layout.*' is empty");
  refuseClip("/variants/0/layout", {{"*", {"dp"}}, {"flat range", {"dp"}}},
             "'variants[0].layout' has 'flat range' beside other dims");
  refuseClip("/variants/0/schedule/2/partial", nullptr,
             "'variants[0].schedule[2].partial' is missing");
  refuseClip("/variants/0/schedule/2/partial", true,
             "'variants[0].schedule[2].partial' is not a list");
  refuseClip("/variants/0/schedule/2/partial", {"*"},
             "'variants[0].schedule[2].partial' has a dim that is not "
             "sharded");
}

TEST(Manifest, exchanges) {
  auto refuseShare = [](const char *pointer, const json &value,
                        const char *message) {
    refuseAt(pointer, value, message, makeShareManifest());
  };
  refuseShare("/variants/1/schedule/1/segment", 2,
              "'variants[1].schedule[1].segment' has no round after it");
  refuseShare("/variants/1/schedule/1/buffer", 4,
              "'variants[1].schedule[1].buffer' is not a buffer");
  refuseShare("/variants/1/schedule/2/buffer", 0,
              "'variants[1].schedule[2]' is of a buffer that crosses already");
  refuseShare("/variants/1/schedule/0/segment", 1,
              "'variants[1].schedule[1].segment' is below the one before it");
  refuseShare("/variants/1/schedule/7/segment", 0,
              "'variants[1].schedule[7]' is behind an exchange of its segment");
  refuseShare("/variants/1/schedule/7/after", nullptr,
              "'variants[1].schedule[7].after' is missing");
  refuseShare("/variants/1/schedule/7/after/1/entry", 7,
              "'variants[1].schedule[7].after[1].entry' is not an entry before "
              "this one");
  refuseShare("/variants/1/schedule/7/after/0/scope", "group",
              "'variants[1].schedule[7].after[0].scope' is not a scope");
  refuseShare("/variants/1/schedule/1/op", "min",
              "'variants[1].schedule[1].op' is neither sum nor amax");
  refuseShare("/variants/1/schedule/1/dims", json::array(),
              "'variants[1].schedule[1].dims' is empty");
  for (const char *dim : {"x", "1", "flat range"})
    refuseShare("/variants/1/schedule/1/dims", {dim},
                "'variants[1].schedule[1].dims' has an element that "
                "is not a dim of the rule");
  size_t flat = makeShareManifest()["variants"].size() - 1;
  std::string place = std::to_string(flat);
  refuseShare(("/variants/" + place + "/schedule/1/dims").c_str(), {"n"},
              ("'variants[" + place +
               "].schedule[1].dims' has an element that is not the flat "
               "range")
                  .c_str());
  refuseShare("/variants/1/workspace/0/bytes", 4,
              "'variants[1].schedule[1]' is of a buffer whose "
              "entries do not have 8 bytes");
  refuseShare("/variants/1/workspace/0/live", false,
              "'variants[1].schedule[1]' is of a buffer that is not "
              "live");
  refuseShare("/variants/1/workspace/0/use", "routine",
              "'variants[1].workspace[0].use' is of a buffer that is live");
  for (const char *use : {"all", "host"})
    refuseShare("/variants/1/workspace/0/use", use,
                "'variants[1].workspace[0].use' is not a use");
}

TEST(Manifest, stages) {
  auto refuseStages = [](const json &value, const char *message) {
    refuseAt("/variants/1/schedule/0/stages", value, message,
             makeShareManifest());
  };
  refuseStages(json::array(), "'variants[1].schedule[0].stages' is empty");
  refuseStages("rows", "'variants[1].schedule[0].stages' is not a list");
  refuseStages({"rows", "cols"}, "'variants[1].schedule[0].stages' has an "
                                 "element that is not a stage");
}

TEST(Manifest, spaces) {
  refuseClip("/variants/0/space", "rows",
             "'variants[0].space' is neither elements nor tiles");
  refuseClip("/variants/0/space", "elements",
             "'variants[0].schedule' is not one kernel on elements");
  refuseClip("/variants/1/tensor_slots", 1,
             "'variants[1].space' has no slots and no workspace");
  for (const char *factor : {"n", "*/", "*/0", "*/1x", "*/-1", ""})
    refuseClip("/variants/0/workspace/0/size/0", factor,
               "'variants[0].workspace[0].size' has a factor that is not "
               "known");
  refuseClip("/variants/0/workspace/0/size/0", "Q",
             "'variants[0].workspace[0].size' has a factor that is not known");
  for (const char *factor : {"range rows", "range blocks"})
    refuseClip("/variants/0/workspace/0/size/0", factor,
               "'variants[0].workspace[0].size' has a factor of flat layouts");
  refuseClip("/variants/0/workspace/0/bytes", 1025,
             "'variants[0].workspace[0].bytes' is not an integer from 0 to "
             "1024");
  refuseClip("/variants/0/workspace/1/name", "norm2",
             "'variants[0].workspace' has a name twice");
  refuseClip("/variants/0/operands/1/dims", {"n"},
             "'variants[0].operands[1].dims' is not the rule's");
  auto refuseFactor = [](const json &dims) {
    refuseAt("/variants/0/operands/2/dims", dims,
             "'variants[0].operands[2].dims' does not follow from the rule's",
             makeFactorManifest());
  };
  refuseFactor({"...b", "k", "1"});
  refuseFactor({"n", "1"});
  refuseFactor({"1", "m"});
  refuseAt("/variants/0/space", "elements",
           "'variants[0].space' has no operands of fewer dims", [] {
             json manifest = makeFactorManifest();
             json &variant = manifest["variants"][0];
             setSchedule(variant, {variant["schedule"][2]});
             variant["workspace"] = json::array();
             return manifest;
           }());
}

/// Functions of all kinds are looked for when a package is loaded.
TEST(Manifest, symbols) {
  for (const char *pointer :
       {"/variants/0/scalars/functions/1", "/variants/0/schedule/0/kernel",
        "/variants/0/schedule/0/strided_kernel",
        "/variants/0/schedule/1/finish", "/rounds/0/calls/1/function"}) {
    json manifest = makeClipManifest();
    manifest[json::json_pointer(pointer)] = "absent";
    refuse(STEPC_CORRUPT_PACKAGE,
           "member 'code/x86-64-v3.so' of package '<memory>' has no symbol "
           "'absent'",
           manifest);
  }
}

} // namespace
