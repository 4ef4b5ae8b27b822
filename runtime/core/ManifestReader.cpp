//===- ManifestReader.cpp - from JSON text to a checked Manifest ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Json.h"
#include "core/Manifest.h"
#include "core/Status.h"

#include "stepc/kernel_abi.h"

#include <cmath>

using namespace stepc;

namespace {

constexpr int64_t kFormat = 1;
constexpr size_t kMaxTextSize = size_t(16) << 20;
constexpr int64_t kMaxScalarSlots = 65536;

/// Walks the JSON value and says where in it something is wrong. Nothing is
/// coerced: a number where a string belongs is an error.
class ManifestReader {
public:
  ManifestReader(const char *file, Manifest &manifest)
      : file(file), manifest(manifest) {}

  void read(std::string_view text);

private:
  [[noreturn]] void bad(const std::string &where, const char *what) const;
  const Json &get(const Json &object, const char *key,
                  const std::string &where) const;
  const Json &getArray(const Json &object, const char *key,
                       const std::string &where) const;
  const Json &getObject(const Json &object, const char *key,
                        const std::string &where) const;
  std::string getString(const Json &object, const char *key,
                        const std::string &where) const;
  double getNumber(const Json &object, const char *key,
                   const std::string &where) const;
  bool getBool(const Json &object, const char *key,
               const std::string &where) const;
  int64_t getOptionValue(const Json &value, const std::string &where) const;

  void checkVersion(const Json &root, const char *key, int64_t expected) const;
  void checkDims(const Json &object, const std::string &where) const;
  void readHypers(const Json &root);
  void readOptions(const Json &root);
  void readDerived(const Json &derived, const std::string &where,
                   Option &option) const;
  void readRules(const Json &root);
  void readVariant(const Json &value, const std::string &where);
  Operand readOperand(const Json &value, const std::string &where) const;
  void readOperands(const Json &value, const std::string &where,
                    Variant &variant) const;
  void readSchedule(const Json &value, const std::string &where,
                    Variant &variant) const;
  void readCode(const Json &root);

  const char *file;
  Manifest &manifest;
};

std::string at(const std::string &where, size_t i) {
  return where + "[" + std::to_string(i) + "]";
}

std::string at(const std::string &where, const char *key) {
  return where.empty() ? key : where + "." + key;
}

/// Whether two elements have one name.
template <typename T>
bool hasTwins(const std::vector<T> &list) {
  for (size_t i = 0; i < list.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (list[i].name == list[k].name)
        return true;
  return false;
}

} // namespace

void ManifestReader::bad(const std::string &where, const char *what) const {
  fail(STEPC_CORRUPT_PACKAGE, "package '%s' is corrupt: manifest.json: '%s' %s",
       file, where.c_str(), what);
}

const Json &ManifestReader::get(const Json &object, const char *key,
                                const std::string &where) const {
  const Json *found = object.find(key);
  if (!found)
    bad(at(where, key), "is missing");
  return *found;
}

const Json &ManifestReader::getArray(const Json &object, const char *key,
                                     const std::string &where) const {
  const Json &value = get(object, key, where);
  if (!value.is(Json::Kind::Array))
    bad(at(where, key), "is not a list");
  return value;
}

const Json &ManifestReader::getObject(const Json &object, const char *key,
                                      const std::string &where) const {
  const Json &value = get(object, key, where);
  if (!value.is(Json::Kind::Object))
    bad(at(where, key), "is not an object");
  return value;
}

std::string ManifestReader::getString(const Json &object, const char *key,
                                      const std::string &where) const {
  const Json &value = get(object, key, where);
  if (!value.is(Json::Kind::String) || value.string.empty())
    bad(at(where, key), "is not a string, or empty");
  return value.string;
}

double ManifestReader::getNumber(const Json &object, const char *key,
                                 const std::string &where) const {
  const Json &value = get(object, key, where);
  if (!value.is(Json::Kind::Number) && !value.is(Json::Kind::Integer))
    bad(at(where, key), "is not a number");
  return value.number;
}

bool ManifestReader::getBool(const Json &object, const char *key,
                             const std::string &where) const {
  const Json &value = get(object, key, where);
  if (!value.is(Json::Kind::Boolean))
    bad(at(where, key), "is not true or false");
  return value.boolean;
}

int64_t ManifestReader::getOptionValue(const Json &value,
                                       const std::string &where) const {
  if (value.is(Json::Kind::Boolean))
    return value.boolean;
  if (!value.is(Json::Kind::Integer))
    bad(where, "is neither a boolean nor an integer");
  return value.integer;
}

void ManifestReader::checkVersion(const Json &root, const char *key,
                                  int64_t expected) const {
  const Json &value = get(root, key, "");
  if (!value.is(Json::Kind::Integer))
    bad(key, "is not an integer");
  int64_t found = value.integer;
  if (found != expected)
    fail(STEPC_VERSION_MISMATCH,
         "package '%s' has %s %lld, this runtime reads %s %lld", file, key,
         static_cast<long long>(found), key, static_cast<long long>(expected));
}

/// Operands have the parameter's shape so far.
void ManifestReader::checkDims(const Json &object,
                               const std::string &where) const {
  const Json &dims = getArray(object, "dims", where);
  if (dims.elements.size() != 1 || dims.elements[0].string != "*")
    fail(STEPC_VERSION_MISMATCH,
         "package '%s' has '%s' other than [\"*\"], which this runtime does "
         "not know",
         file, at(where, "dims").c_str());
}

void ManifestReader::read(std::string_view text) {
  if (text.size() > kMaxTextSize)
    bad("", "is larger than 16 MiB");
  Json root;
  if (!parseJson(text, root) || !root.is(Json::Kind::Object))
    bad("", "is not an object in JSON");
  // First, because all that follows depends on them.
  checkVersion(root, "format", kFormat);
  checkVersion(root, "kernel_abi", STEPC_KERNEL_ABI_VERSION);

  manifest.optimizer = getString(root, "optimizer", "");
  readHypers(root);
  readOptions(root);
  readRules(root);
  const Json &variants = getArray(root, "variants", "");
  if (variants.elements.empty())
    bad("variants", "is empty");
  for (size_t i = 0; i < variants.elements.size(); ++i)
    readVariant(variants.elements[i], at("variants", i));
  if (hasTwins(manifest.variants))
    bad("variants", "has a name twice");
  readCode(root);
}

void ManifestReader::readHypers(const Json &root) {
  const Json &list = getArray(root, "hypers", "");
  for (size_t i = 0; i < list.elements.size(); ++i) {
    std::string where = at("hypers", i);
    manifest.hypers.push_back({getString(list.elements[i], "name", where),
                               getNumber(list.elements[i], "default", where)});
  }
  if (hasTwins(manifest.hypers))
    bad("hypers", "has a name twice");
}

void ManifestReader::readOptions(const Json &root) {
  const Json &list = getArray(root, "options", "");
  for (size_t i = 0; i < list.elements.size(); ++i) {
    std::string where = at("options", i);
    Option option;
    option.name = getString(list.elements[i], "name", where);
    if (list.elements[i].find("derived"))
      readDerived(getObject(list.elements[i], "derived", where),
                  at(where, "derived"), option);
    else
      option.defaultValue = getOptionValue(
          get(list.elements[i], "default", where), at(where, "default"));
    manifest.options.push_back(std::move(option));
  }
  if (hasTwins(manifest.options))
    bad("options", "has a name twice");
}

void ManifestReader::readDerived(const Json &derived, const std::string &where,
                                 Option &option) const {
  static const std::pair<const char *, Predicate> predicates[] = {
      {"eq", Predicate::EQ}, {"ne", Predicate::NE}, {"lt", Predicate::LT},
      {"le", Predicate::LE}, {"gt", Predicate::GT}, {"ge", Predicate::GE}};
  option.derived = true;
  option.value = getNumber(derived, "value", where);

  std::string hyper = getString(derived, "hyper", where);
  const auto &hypers = manifest.hypers;
  while (option.hyper < hypers.size() && hypers[option.hyper].name != hyper)
    ++option.hyper;
  if (option.hyper == hypers.size())
    bad(at(where, "hyper"), "is not a hyper-parameter");

  std::string predicate = getString(derived, "predicate", where);
  for (auto [name, value] : predicates)
    if (predicate == name) {
      option.predicate = value;
      return;
    }
  bad(at(where, "predicate"), "is not a predicate");
}

void ManifestReader::readRules(const Json &root) {
  const Json &list = getArray(root, "rules", "");
  for (size_t i = 0; i < list.elements.size(); ++i)
    manifest.rules.push_back(
        getString(list.elements[i], "name", at("rules", i)));
  if (list.elements.empty())
    bad("rules", "is empty");
}

void ManifestReader::readVariant(const Json &value, const std::string &where) {
  Variant variant;
  variant.name = getString(value, "name", where);
  variant.rule = getString(value, "rule", where);
  bool known = false;
  for (const std::string &rule : manifest.rules)
    known |= rule == variant.rule;
  if (!known)
    bad(at(where, "rule"), "is not a rule");

  const Json &options = getObject(value, "options", where);
  for (const Option &option : manifest.options)
    variant.options.push_back(
        getOptionValue(get(options, option.name.c_str(), at(where, "options")),
                       at(where, "options")));
  if (options.elements.size() != manifest.options.size())
    bad(at(where, "options"), "names an option that does not exist");

  readOperands(getArray(value, "operands", where), at(where, "operands"),
               variant);
  const Json &scalars = getObject(value, "scalars", where);
  variant.scalarFunction = getString(scalars, "function", at(where, "scalars"));
  double slots = getNumber(scalars, "slots", at(where, "scalars"));
  if (!(slots >= 0 && slots <= kMaxScalarSlots) || slots != std::floor(slots))
    bad(at(where, "scalars.slots"), "is not an integer from 0 to 65536");
  variant.scalarSlots = size_t(slots);
  readSchedule(getArray(value, "schedule", where), at(where, "schedule"),
               variant);
  variant.subsets = getBool(value, "subsets", where);
  manifest.variants.push_back(std::move(variant));
}

Operand ManifestReader::readOperand(const Json &value,
                                    const std::string &where) const {
  Operand operand;
  operand.name = getString(value, "name", where);
  operand.reads = getBool(value, "reads", where);
  operand.writes = getBool(value, "writes", where);
  checkDims(value, where);

  std::string role = getString(value, "role", where);
  if (role == "param")
    operand.role = Role::Param;
  else if (role == "grad")
    operand.role = Role::Grad;
  else if (role == "state")
    operand.role = Role::State;
  else
    bad(at(where, "role"), "is not a role");
  if (operand.role == Role::State)
    operand.initialValue = getNumber(value, "init", where);
  if (operand.role == Role::Grad && operand.writes)
    bad(at(where, "writes"), "is true for a gradient");

  std::string storage = getString(value, "storage", where);
  for (Storage s : {Storage::F32, Storage::F64, Storage::BF16})
    if (storage == getName(s)) {
      operand.storage = s;
      return operand;
    }
  bad(at(where, "storage"), "is not a storage type");
}

void ManifestReader::readOperands(const Json &value, const std::string &where,
                                  Variant &variant) const {
  int params = 0, grads = 0;
  for (size_t i = 0; i < value.elements.size(); ++i) {
    variant.operands.push_back(readOperand(value.elements[i], at(where, i)));
    switch (variant.operands.back().role) {
    case Role::Param:
      variant.param = i;
      ++params;
      break;
    case Role::Grad:
      variant.grad = i;
      ++grads;
      break;
    case Role::State:
      variant.states.push_back(i);
      break;
    }
  }
  if (params != 1 || grads != 1)
    bad(where, "does not have one parameter and one gradient");
  if (hasTwins(variant.operands))
    bad(where, "has a name twice");
}

void ManifestReader::readSchedule(const Json &value, const std::string &where,
                                  Variant &variant) const {
  if (value.elements.size() != 1)
    fail(STEPC_VERSION_MISMATCH,
         "package '%s' has a schedule of %zu entries ('%s'), this runtime runs "
         "schedules of 1",
         file, value.elements.size(), where.c_str());
  variant.kernel = getString(value.elements[0], "kernel", at(where, size_t(0)));
  variant.stridedKernel =
      getString(value.elements[0], "strided_kernel", at(where, size_t(0)));
}

void ManifestReader::readCode(const Json &root) {
  const Json &list = getArray(root, "code", "");
  for (size_t i = 0; i < list.elements.size(); ++i) {
    std::string where = at("code", i);
    CodeEntry entry;
    entry.target = getString(list.elements[i], "target", where);
    entry.file = getString(list.elements[i], "file", where);
    const Json &features = getArray(list.elements[i], "cpu_features", where);
    for (const Json &feature : features.elements) {
      if (!feature.is(Json::Kind::String))
        bad(at(where, "cpu_features"), "has an element that is not a string");
      entry.cpuFeatures.push_back(feature.string);
    }
    manifest.code.push_back(std::move(entry));
  }
  if (list.elements.empty())
    bad("code", "is empty");
}

Manifest stepc::readManifest(const char *file, std::string_view text) {
  Manifest manifest;
  ManifestReader(file, manifest).read(text);
  return manifest;
}
