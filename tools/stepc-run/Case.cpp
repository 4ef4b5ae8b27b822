//===- Case.cpp - what to run ---------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Case.h"

#include "Zip.h"

#include "dialect/RandomBits.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

using namespace llvm;
using namespace stepc::run;
using namespace mlir::step;
using namespace mlir::step::reference;

//===----------------------------------------------------------------------===//
// Storage formats
//===----------------------------------------------------------------------===//

Error stepc::run::parseStorages(StringRef role, StringRef text,
                                std::map<std::string, Format> &storages) {
  for (StringRef item : split(text, ',')) {
    auto [name, word] =
        item.contains(':') ? item.split(':') : std::pair(StringRef(), item);
    std::optional<Format> format = parseFormat(word);
    if (!format)
      return makeError("'" + word + "' is no storage type of " + role +
                       ": bf16, f16, f32 or f64");
    if (!name.empty() && role != "state")
      return makeError("'" + item + "': only states have names");
    storages[name.empty() ? role.str() : (role + "." + name).str()] = *format;
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Batches
//===----------------------------------------------------------------------===//

/// A number, or a string such as "nan" and "-inf", which JSON does not have.
static bool readNumber(const json::Value &value, double &out) {
  if (std::optional<double> number = value.getAsNumber()) {
    out = *number;
    return true;
  }
  std::optional<StringRef> text = value.getAsString();
  return text && !text->getAsDouble(out);
}

static bool readNumbers(const json::Value &value,
                        std::map<std::string, double> &out) {
  const json::Object *object = value.getAsObject();
  return object && all_of(*object, [&](const json::Object::value_type &item) {
           return readNumber(item.second, out[item.first.str()]);
         });
}

static bool readString(const json::Value &value, std::string &out) {
  std::optional<StringRef> text = value.getAsString();
  out = text.value_or("").str();
  return text.has_value();
}

static bool readInteger(const json::Value &value, int64_t &out) {
  std::optional<int64_t> number = value.getAsInteger();
  out = number.value_or(0);
  return number.has_value();
}

/// true, false or an integer.
static bool readOption(const json::Value &value, OptionValue &out) {
  if (std::optional<bool> flag = value.getAsBoolean()) {
    out = *flag;
    return true;
  }
  std::optional<int64_t> number = value.getAsInteger();
  out = number.value_or(0);
  return number.has_value();
}

/// One boolean for all steps, or one for each.
static bool readFlags(const json::Value &value, std::vector<bool> &out) {
  if (std::optional<bool> flag = value.getAsBoolean()) {
    out = {*flag};
    return true;
  }
  const json::Array *array = value.getAsArray();
  if (!array || array->empty())
    return false;
  out.clear();
  return all_of(*array, [&](const json::Value &item) {
    out.push_back(item.getAsBoolean().value_or(false));
    return item.getAsBoolean().has_value();
  });
}

/// Whether the first step creates the states, or the names of those that it
/// does.
static bool readFresh(const json::Value &value, TensorCase &out) {
  out.fresh = value.getAsBoolean();
  out.created.reset();
  const json::Array *names = value.getAsArray();
  if (!names)
    return out.fresh.has_value();
  out.created.emplace();
  return all_of(*names, [&](const json::Value &name) {
    out.created->insert(name.getAsString().value_or("").str());
    return name.getAsString().has_value();
  });
}

/// Reads one key of a tensor; false if it is unknown or its value is no such
/// thing.
static bool readTensorKey(StringRef key, const json::Value &value,
                          TensorCase &out) {
  if (key == "rule")
    return readString(value, out.rule);
  if (key == "group")
    return readInteger(value, out.group) && out.group >= 0;
  if (key == "count")
    // Any: the oracle's powers are tested with exponents that no step has.
    return readInteger(value, out.count);
  if (key == "fresh")
    return readFresh(value, out);
  if (key == "participates")
    return readFlags(value, out.participates);
  if (key == "master") {
    std::optional<StringRef> text = value.getAsString();
    std::optional<Master> master = parseMaster(text.value_or(""));
    out.master = master.value_or(Master::None);
    return master.has_value();
  }
  if (key == "rounding_seed") {
    out.roundingSeed = value.getAsInteger();
    int64_t seed = out.roundingSeed.value_or(-1);
    return seed >= 0 && seed <= kMostSeed;
  }
  if (key == "param" || key == "grad" || key == "state") {
    std::optional<StringRef> text = value.getAsString();
    return text && !errorToBool(parseStorages(key, *text, out.storages));
  }
  return false;
}

static bool readGroupKey(StringRef key, const json::Value &value,
                         GroupRequest &out) {
  if (key == "hypers")
    return readNumbers(value, out.hypers);
  const json::Object *object = value.getAsObject();
  if (key == "options" && object)
    return all_of(*object, [&](const json::Object::value_type &item) {
      return readOption(item.second, out.options[item.first.str()]);
    });
  return false;
}

/// The same of a line. Tensors and groups, which begin as it says, come later.
static bool readKey(StringRef key, const json::Value &value, Case &out) {
  if (key == "input")
    return readString(value, out.input);
  if (key == "prefix")
    return readString(value, out.prefix);
  if (key == "steps")
    return readInteger(value, out.steps) && out.steps > 0;
  if (key == "scalars")
    return readNumbers(value, out.scalars);
  if (key == "mode") {
    std::optional<StringRef> text = value.getAsString();
    out.mode = text == "f64"     ? Mode::F64
               : text == "bound" ? Mode::Bound
                                 : Mode::Exact;
    return text == "f64" || text == "bound" || text == "exact";
  }
  if (key == "fragments") {
    out.fragments.clear();
    const json::Array *array = value.getAsArray();
    return array && all_of(*array, [&](const json::Value &item) {
             return readString(item, out.fragments.emplace_back());
           });
  }
  if (key == "tensors" || key == "groups")
    return value.getAsArray();
  return readTensorKey(key, value, out.tensor) ||
         readGroupKey(key, value, out.group);
}

static Error refuseKey(StringRef key, const Twine &owner) {
  return makeError("'" + key + "' is no key of " + owner +
                   " or has a wrong value");
}

/// Reads the objects of an array; each begins as `first`.
template <typename ItemT, typename ReadT>
static Error readItems(const json::Object &line, StringRef name,
                       const ItemT &first, std::vector<ItemT> &out,
                       ReadT readItemKey) {
  const json::Array *array = line.getArray(name);
  for (size_t index = 0; array && index < array->size(); ++index) {
    const json::Object *object = (*array)[index].getAsObject();
    if (!object)
      return refuseKey(name, "a case");
    ItemT &item = out.emplace_back(first);
    for (const auto &[key, value] : *object)
      if (!readItemKey(StringRef(key), value, item))
        return refuseKey(key, "one of the " + name);
  }
  return Error::success();
}

static Error readCase(const json::Object &line, Case &out) {
  for (const auto &[key, item] : line)
    if (!readKey(StringRef(key), item, out))
      return refuseKey(key, "a case");
  auto readTensor = [](StringRef key, const json::Value &value,
                       TensorCase &tensor) {
    return key == "prefix" ? readString(value, tensor.prefix)
                           : readTensorKey(key, value, tensor);
  };
  auto readGroup = [](StringRef key, const json::Value &value,
                      GroupRequest &group) {
    return key == "scalars" ? readNumbers(value, group.scalars)
                            : readGroupKey(key, value, group);
  };
  if (Error error =
          readItems(line, "tensors", out.tensor, out.tensors, readTensor))
    return error;
  return readItems(line, "groups", out.group, out.groups, readGroup);
}

Expected<std::vector<Case>> stepc::run::readBatch(StringRef text,
                                                  const Case &defaults) {
  std::vector<Case> cases;
  int64_t number = 0;
  for (StringRef line : split(text, '\n')) {
    ++number;
    if (line.trim().empty())
      continue;
    Expected<json::Value> value = json::parse(line);
    if (!value)
      return makeError("line " + Twine(number) + ": " +
                       toString(value.takeError()));
    const json::Object *object = value->getAsObject();
    if (!object)
      return makeError("line " + Twine(number) + ": expected an object");
    if (Error error = readCase(*object, cases.emplace_back(defaults)))
      return makeError("line " + Twine(number) + ": " +
                       toString(std::move(error)));
  }
  return cases;
}
