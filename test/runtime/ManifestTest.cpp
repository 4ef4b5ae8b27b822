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

/// Changes the good manifest at a JSON pointer; null removes.
void refuseAt(const char *pointer, const json &value, const char *message) {
  json manifest = makeToyManifest();
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
         "package '<memory>' has format 1, this runtime reads format 2",
         manifest);
  // Whatever else there may be in a later format.
  refuse(STEPC_VERSION_MISMATCH,
         "package '<memory>' has format 7, this runtime reads format 2",
         {{"format", 7}, {"variants", "elsewhere"}});
  manifest["format"] = 2;
  manifest["kernel_abi"] = 9;
  refuse(STEPC_VERSION_MISMATCH,
         "package '<memory>' has kernel_abi 9, this runtime reads kernel_abi 2",
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

} // namespace
