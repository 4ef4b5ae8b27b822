//===- TransferManifests.cpp - variants that bring gradients --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/PackageWriter.h"

#include <algorithm>

using namespace stepc_test;
using nlohmann::json;

json stepc_test::addTransfers(json variant, std::vector<const char *> kinds,
                              const char *entry, const char *wire,
                              const char *dim, int lastSegment) {
  json before = json::array(), behind = json::array();
  for (const char *kind : kinds) {
    std::string name = kind;
    bool whole = name == "to_owner_whole";
    if (whole)
      name = "to_owner";
    bool ofParam = name == "all_gather" || name == "from_owner";
    bool cuts =
        name == "all_gather" || name == "all_slice" || name == "reduce_scatter";
    json made = {{"exchange", name},
                 {"segment", ofParam ? lastSegment : 0},
                 {"operand", ofParam ? 0 : 1},
                 {"dims", cuts ? json::array({dim}) : json::array()},
                 {"after", json::array()}};
    if (!ofParam)
      made["entry"] = entry;
    if (!ofParam && name != "all_slice" && !whole)
      made["wire"] = wire;
    (ofParam ? behind : before).push_back(made);
  }
  json schedule = before;
  for (json own : variant["schedule"]) {
    for (json &edge : own["after"])
      edge["entry"] = int(edge["entry"]) + int(before.size());
    if (own["after"].empty() && !before.empty() && !own.contains("exchange"))
      own["after"].push_back(
          {{"entry", before.size() - 1}, {"scope", "bucket"}});
    schedule.push_back(own);
  }
  for (json &made : behind) {
    made["after"].push_back(
        {{"entry", schedule.size() - 1}, {"scope", "tensor"}});
    schedule.push_back(made);
  }
  variant["schedule"] = schedule;
  std::string text = std::string(variant["name"]) + "_" + entry + "_" + wire;
  for (const char *kind : kinds)
    text += std::string("_") + kind;
  variant["name"] = text;
  return variant;
}

const std::vector<std::vector<const char *>> &stepc_test::getTransferForms() {
  static const std::vector<std::vector<const char *>> forms = {
      {"all_slice", "all_gather"},
      {"reduce_scatter", "all_gather"},
      {"all_reduce"},
      {"reduce_scatter", "all_reduce", "all_gather"},
      {"all_slice", "all_reduce", "all_gather"},
      {"to_owner", "from_owner"},
      {"to_owner_whole", "from_owner"},
      {"to_owner", "all_reduce", "from_owner"},
      {"to_owner_whole", "all_reduce", "from_owner"}};
  return forms;
}

/// The toy optimizer with every form and type; and without any, on sums.
json stepc_test::makeToyTransferManifest() {
  json manifest = makeToyManifest();
  json all = json::array();
  for (json variant : manifest["variants"]) {
    if (variant["options"]["maximize"] || !variant["options"]["has_momentum"])
      continue;
    std::string param = variant["operands"][0]["storage"];
    json wide = variant;
    if (param == "bf16") {
      wide["name"] = "toy_bf16_f32";
      wide["operands"][1]["storage"] = "f32";
      wide["schedule"][0]["kernel"] = "toy_bf16_f32_momentum";
      wide["schedule"][0]["strided_kernel"] = "toy_bf16_f32_momentum_strided";
      all.push_back(wide);
    }
    all.push_back(variant);
    for (const auto &form : getTransferForms()) {
      // Where all have the gradient it stays in its own type.
      bool slice =
          form.size() == 2 && (form[0] == std::string("all_slice") ||
                               form[0] == std::string("to_owner_whole"));
      if (slice) {
        all.push_back(addTransfers(variant, form, param.c_str(), param.c_str(),
                                   "flat range"));
        continue;
      }
      for (const char *wire : {"f64", "f32", "bf16", "f16"})
        if (wire != std::string("f64") || param == "f64")
          all.push_back(
              addTransfers(wide, form, param.c_str(), wire, "flat range"));
    }
  }
  manifest["variants"] = all;
  return manifest;
}

/// Every variant of a manifest, and it again with each form.
json stepc_test::addAllTransfers(json manifest) {
  json all = json::array();
  int last = int(manifest["rounds"].size());
  for (const json &variant : manifest["variants"]) {
    all.push_back(variant);
    bool flat = variant["layout"].contains("flat range");
    bool cut = !variant["layout"].empty();
    bool rows = variant["layout"].size() == 1 && !flat;
    for (const auto &form : getTransferForms()) {
      std::string first = form[0];
      bool cuts = first == "all_slice" || first == "reduce_scatter";
      if (cuts != cut || (cut && !flat && !rows))
        continue;
      std::string dim = cut ? variant["layout"].begin().key() : "";
      std::string type = variant["operands"][1]["storage"];
      all.push_back(addTransfers(variant, form, type.c_str(), type.c_str(),
                                 dim.c_str(), last));
    }
  }
  manifest["variants"] = all;
  return manifest;
}
