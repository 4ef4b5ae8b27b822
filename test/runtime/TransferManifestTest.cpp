//===- TransferManifestTest.cpp - entries that do not belong there --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

using namespace stepc_test;
using nlohmann::json;

namespace {

/// The clip optimizer, of two rounds, whose first variant has these entries.
json makeClip(std::vector<const char *> kinds) {
  json manifest = makeShardedClipManifest();
  manifest["variants"] =
      json::array({addTransfers(manifest["variants"][2], std::move(kinds),
                                "f32", "bf16", "flat range", 2)});
  return manifest;
}

void refuseTransfers(const json &manifest, const std::string &message) {
  std::string bytes = makePackage(manifest, readFile(STEPC_TEST_KERNELS));
  StepcPackage *package = nullptr;
  EXPECT_REFUSED(
      STEPC_CORRUPT_PACKAGE,
      ("package '<memory>' is corrupt: manifest.json: " + message).c_str(),
      stepcPackageLoadBytes(bytes.data(), bytes.size(), &package));
  stepcPackageDestroy(package);
}

const std::vector<const char *> kZero2 = {"reduce_scatter", "all_gather"};

/// Entry 0 is the reduce_scatter, the last one the all_gather.
void refuseEntry(size_t entry, const char *key, const json &value,
                 const char *message) {
  json manifest = makeClip(kZero2);
  json &schedule = manifest["variants"][0]["schedule"];
  json &own = schedule[entry ? schedule.size() - 1 : 0];
  if (value.is_null())
    own.erase(key);
  else
    own[key] = value;
  refuseTransfers(manifest,
                  "'variants[0].schedule[" +
                      std::to_string(entry ? schedule.size() - 1 : 0) + "]" +
                      message);
}

TEST(TransferManifest, everyForm) {
  for (const auto &form : getTransferForms())
    EXPECT_NE(nullptr, loadManifest(makeClip(form)).get());
}

TEST(TransferManifest, fields) {
  refuseEntry(0, "exchange", "gather", ".exchange' is not a kind of exchange");
  refuseEntry(0, "exchange", 3, ".exchange' is not a string, or empty");
  refuseEntry(0, "operand", 2, ".operand' is not an operand");
  refuseEntry(0, "operand", 0, ".operand' is not the gradient");
  refuseEntry(1, "operand", 1, ".operand' is not the parameter");
  refuseEntry(0, "dims", nullptr, ".dims' is missing");
  for (const json &dims : {json({"n"}), json({1}), json({"1"})})
    refuseEntry(
        0, "dims", dims,
        ".dims' has an element that is neither a dim of the rule nor the "
        "flat range");
  refuseEntry(0, "dims", json::array(), ".dims' is empty");
  refuseEntry(0, "exchange", "to_owner",
              ".dims' has a dim, and nothing is cut");
  refuseEntry(0, "entry", nullptr, ".entry' is missing");
  refuseEntry(0, "wire", nullptr, ".wire' is missing");
  for (const char *type : {"i16", "f8", "i64"}) {
    refuseEntry(0, "entry", type, ".entry' is not a type of gradients");
    refuseEntry(0, "wire", type, ".wire' is not a type of gradients");
  }
  refuseEntry(0, "entry", "f64",
              ".entry' is f64, whose sums are f64, and the gradient is f32");
  refuseEntry(0, "wire", "f64", ".wire' is f64, and sums are f32");
  refuseEntry(0, "after", nullptr, ".after' is missing");
  json narrow = makeToyTransferManifest();
  for (json &variant : narrow["variants"])
    if (variant["operands"][0]["storage"] == "bf16" &&
        variant["schedule"][0].contains("wire")) {
      variant["operands"][1]["storage"] = "bf16";
      narrow["variants"] = json::array({variant});
      break;
    }
  refuseTransfers(
      narrow, "'variants[0].schedule[0].entry' is bf16, whose sums are f32, "
              "and the gradient is bf16");
}

TEST(TransferManifest, order) {
  refuseEntry(0, "segment", 1,
              ".segment' is not the first, and it is of the gradient");
  refuseEntry(1, "segment", 1,
              ".segment' is not the last, and it is of the parameter");
  refuseEntry(1, "segment", 3, ".segment' is not a segment");
  json manifest = makeClip(kZero2);
  json &schedule = manifest["variants"][0]["schedule"];
  json first = schedule[0];
  for (json &entry : schedule)
    entry["after"] = json::array();
  std::swap(schedule[0], schedule[1]);
  refuseTransfers(manifest,
                  "'variants[0].schedule[1]' is of the gradient, behind what "
                  "uses it");
  manifest = makeClip(kZero2);
  json &other = manifest["variants"][0]["schedule"];
  for (json &entry : other)
    entry["after"] = json::array();
  size_t last = other.size() - 1;
  std::swap(other[last], other[last - 1]);
  refuseTransfers(manifest, "'variants[0].schedule[" + std::to_string(last) +
                                "]' is behind what gives the parameter away");
}

TEST(TransferManifest, whatBelongsTogether) {
  auto refuseKinds = [](std::vector<const char *> kinds, const char *message) {
    refuseTransfers(makeClip(std::move(kinds)),
                    std::string("'variants[0].schedule' ") + message);
  };
  const char *alone = "gives a parameter away whose gradient is not cut";
  refuseKinds({"all_gather"}, alone);
  refuseKinds({"all_reduce", "all_gather"}, alone);
  refuseKinds({"all_gather", "all_gather"}, alone);
  refuseKinds({"from_owner"}, alone);
  refuseKinds({"all_reduce", "from_owner"}, alone);
  refuseKinds({"reduce_scatter"}, "has reduce_scatter without one all_gather");
  refuseKinds({"reduce_scatter", "from_owner"},
              "has reduce_scatter without one all_gather");
  refuseKinds({"to_owner", "all_gather"},
              "has to_owner without one from_owner");
  refuseKinds({"all_slice", "all_reduce"},
              "has all_slice without one all_gather");
  refuseKinds({"all_slice", "all_gather", "all_gather"},
              "has all_slice without one all_gather");
  refuseKinds({"all_slice", "reduce_scatter", "all_gather"},
              "brings the gradient twice");
  refuseKinds({"all_reduce", "all_reduce"}, "brings the gradient twice");
  refuseKinds({"reduce_scatter", "all_reduce", "all_reduce", "all_gather"},
              "brings the gradient twice");
  json manifest = makeClip({"all_slice", "all_gather"});
  manifest["variants"][0]["schedule"][0]["entry"] = "bf16";
  refuseTransfers(manifest,
                  "'variants[0].schedule' takes a slice of a gradient of "
                  "another type");
}

/// A program on elements is one kernel, whatever comes before and behind it.
TEST(TransferManifest, elements) {
  json manifest = makeToyTransferManifest();
  json variant = manifest["variants"][2];
  json &schedule = variant["schedule"];
  schedule.insert(schedule.begin() + 2, schedule[1]);
  manifest["variants"] = json::array({variant});
  refuseTransfers(manifest,
                  "'variants[0].schedule' is not one kernel on elements");
}

} // namespace
