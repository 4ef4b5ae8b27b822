//===- ManifestReader.cpp - from JSON text to a checked Manifest --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ManifestReader.h"

#include "core/Status.h"

#include "stepc/kernel_abi.h"

#include <algorithm>

using namespace stepc;

static constexpr int64_t kFormat = 5;
static constexpr size_t kMaxTextSize = size_t(16) << 20;

/// First, because all that follows depends on them.
static void checkVersion(const FieldReader &fields, const Json &root,
                         const char *key, int64_t expected) {
  int64_t found = fields.getInteger(root, key, "");
  if (found != expected)
    fail(STEPC_VERSION_MISMATCH, "%s has %s %lld, this runtime reads %s %lld",
         fields.describeFile().c_str(), key, static_cast<long long>(found), key,
         static_cast<long long>(expected));
}

static void readHypers(const FieldReader &fields, const Json &root,
                       Manifest &manifest) {
  const Json &list = fields.getArray(root, "hypers", "");
  for (size_t i = 0; i < list.elements.size(); ++i) {
    std::string where = at("hypers", i);
    manifest.hypers.push_back(
        {fields.getString(list.elements[i], "name", where),
         fields.getNumber(list.elements[i], "default", where)});
  }
  if (hasTwins(manifest.hypers))
    fields.bad("hypers", "has a name twice");
}

static void readDerived(const FieldReader &fields, const Json &derived,
                        const std::string &where, const Manifest &manifest,
                        Option &option) {
  option.derived = true;
  option.value = fields.getNumber(derived, "value", where);
  option.hyper =
      findName(manifest.hypers, fields.getString(derived, "hyper", where));
  if (option.hyper == manifest.hypers.size())
    fields.bad(at(where, "hyper"), "is not a hyper-parameter");
  option.predicate = fields.getPredicate(derived, where);
}

static void readOptions(const FieldReader &fields, const Json &root,
                        Manifest &manifest) {
  const Json &list = fields.getArray(root, "options", "");
  for (size_t i = 0; i < list.elements.size(); ++i) {
    std::string where = at("options", i);
    const Json &element = list.elements[i];
    Option option;
    option.name = fields.getString(element, "name", where);
    if (element.find("derived")) {
      readDerived(fields, fields.getObject(element, "derived", where),
                  at(where, "derived"), manifest, option);
    } else {
      const Json &value = fields.get(element, "default", where);
      option.integer = value.is(Json::Kind::Integer);
      if (!option.integer && !value.is(Json::Kind::Boolean))
        fields.bad(at(where, "default"), "is neither a boolean nor an integer");
      option.defaultValue = option.integer ? value.integer : value.boolean;
    }
    manifest.options.push_back(std::move(option));
  }
  if (hasTwins(manifest.options))
    fields.bad("options", "has a name twice");
}

/// What the code of a CUDA device is for.
static void readCudaCode(const FieldReader &fields, const Json &element,
                         const std::string &where, CodeEntry &entry) {
  auto endsWith = [&](const std::string &end) {
    return entry.file.size() > end.size() &&
           entry.file.compare(entry.file.size() - end.size(), end.size(),
                              end) == 0;
  };
  entry.computeCapability =
      fields.getInteger(element, "compute_capability", where);
  if (entry.computeCapability < 10 || entry.computeCapability > 9999)
    fields.bad(at(where, "compute_capability"), "is not between 10 and 9999");
  entry.isPTX = endsWith(".ptx");
  if (!entry.isPTX && !endsWith(".cubin"))
    fields.bad(at(where, "file"), "is neither a .ptx nor a .cubin");
}

static void readCode(const FieldReader &fields, const Json &root,
                     Manifest &manifest) {
  const Json &list = fields.getArray(root, "code", "");
  for (size_t i = 0; i < list.elements.size(); ++i) {
    std::string where = at("code", i);
    CodeEntry entry;
    entry.target = fields.getString(list.elements[i], "target", where);
    entry.file = fields.getString(list.elements[i], "file", where);
    entry.device = list.elements[i].find("device")
                       ? fields.getString(list.elements[i], "device", where)
                       : "cpu";
    if (entry.device != "cpu") {
      if (entry.device == "cuda")
        readCudaCode(fields, list.elements[i], where, entry);
      manifest.code.push_back(std::move(entry));
      continue;
    }
    const Json &features =
        fields.getArray(list.elements[i], "cpu_features", where);
    for (const Json &feature : features.elements) {
      if (!feature.is(Json::Kind::String))
        fields.bad(at(where, "cpu_features"),
                   "has an element that is not a string");
      entry.cpuFeatures.push_back(feature.string);
    }
    manifest.code.push_back(std::move(entry));
  }
  if (list.elements.empty())
    fields.bad("code", "is empty");
}

/// Kernels convert the seed to an integer, which has no meaning for others.
static void readSeed(const FieldReader &fields, Manifest &manifest) {
  auto hasPosition = [](const Variant &variant) {
    return std::any_of(
        variant.operands.begin(), variant.operands.end(),
        [](const Operand &operand) { return operand.role == Role::Position; });
  };
  size_t seed = findName(manifest.hypers, STEPC_SEED_HYPER);
  if (seed == manifest.hypers.size() ||
      std::none_of(manifest.variants.begin(), manifest.variants.end(),
                   hasPosition))
    return;
  manifest.seed = seed;
  if (!isSeed(manifest.hypers[seed].defaultValue))
    fields.bad(at(at("hypers", seed), "default"),
               "is not an integer from 0 to 2^53");
}

static Json parseObject(const FieldReader &fields, std::string_view text) {
  if (text.size() > kMaxTextSize)
    fields.bad("", "is larger than 16 MiB");
  Json root;
  if (!parseJson(text, root) || !root.is(Json::Kind::Object))
    fields.bad("", "is not an object in JSON");
  return root;
}

/// What a definition says of itself, and a package of the definition.
static Manifest readNames(const FieldReader &fields, const Json &root) {
  Manifest manifest;
  manifest.optimizer = fields.getString(root, "optimizer", "");
  readHypers(fields, root, manifest);
  readOptions(fields, root, manifest);
  return manifest;
}

static Manifest readWhole(const FieldReader &fields, const Json &root) {
  checkVersion(fields, root, "format", kFormat);
  checkVersion(fields, root, "kernel_abi", STEPC_KERNEL_ABI_VERSION);
  Manifest manifest = readNames(fields, root);
  readRounds(fields, root, manifest);
  readRules(fields, root, manifest);
  readVariants(fields, root, manifest);
  readCode(fields, root, manifest);
  readSeed(fields, manifest);
  return manifest;
}

Manifest stepc::readManifest(const char *file, std::string_view text) {
  FieldReader fields(file);
  return readWhole(fields, parseObject(fields, text));
}

Manifest stepc::readInterface(std::string_view text) {
  FieldReader fields(nullptr);
  Json root = parseObject(fields, text);
  if (root.find("variants"))
    return readWhole(fields, root);
  Manifest manifest = readNames(fields, root);
  if (root.find("rules"))
    readRules(fields, root, manifest);
  return manifest;
}
