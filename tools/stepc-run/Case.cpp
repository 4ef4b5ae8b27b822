//===- Case.cpp - what to run ---------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Case.h"

#include "Zip.h"

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
                       ": bf16, f32 or f64");
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

/// Reads one key of a line; false if it is unknown or its value is no such
/// thing.
static bool readKey(StringRef key, const json::Value &value, Case &out) {
  auto readString = [&](std::string &field) {
    std::optional<StringRef> text = value.getAsString();
    field = text.value_or("").str();
    return text.has_value();
  };
  auto readInteger = [&](int64_t &field) {
    std::optional<int64_t> number = value.getAsInteger();
    field = number.value_or(0);
    return number.has_value();
  };
  if (key == "input")
    return readString(out.input);
  if (key == "prefix")
    return readString(out.prefix);
  if (key == "rule")
    return readString(out.rule);
  if (key == "count")
    // Any: the oracle's powers are tested with exponents that no step has.
    return readInteger(out.count);
  if (key == "steps")
    return readInteger(out.steps) && out.steps > 0;
  if (key == "fresh") {
    out.fresh = value.getAsBoolean();
    return out.fresh.has_value();
  }
  if (key == "mode") {
    std::optional<StringRef> text = value.getAsString();
    out.mode = text == "f64" ? Mode::F64 : Mode::Exact;
    return text == "f64" || text == "exact";
  }
  if (key == "param" || key == "grad" || key == "state") {
    std::optional<StringRef> text = value.getAsString();
    return text && !errorToBool(parseStorages(key, *text, out.storages));
  }
  const json::Object *object = value.getAsObject();
  if (key == "hypers" && object)
    return all_of(*object, [&](const json::Object::value_type &item) {
      return readNumber(item.second, out.hypers[item.first.str()]);
    });
  if (key == "options" && object)
    return all_of(*object, [&](const json::Object::value_type &item) {
      std::optional<bool> flag = item.second.getAsBoolean();
      out.options[item.first.str()] = flag.value_or(false);
      return flag.has_value();
    });
  return false;
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
    Case &current = cases.emplace_back(defaults);
    for (const auto &[key, item] : *object)
      if (!readKey(StringRef(key), item, current))
        return makeError("line " + Twine(number) + ": '" + StringRef(key) +
                         "' is no key of a case or has a wrong value");
  }
  return cases;
}

//===----------------------------------------------------------------------===//
// Arrays of a case
//===----------------------------------------------------------------------===//

/// The storage format that the case asks for; `otherwise` if it does not.
static Format findStorage(const Case &input, StringRef role, StringRef state,
                          Format otherwise) {
  auto found = input.storages.find((role + "." + state).str());
  if (found == input.storages.end())
    found = input.storages.find(role.str());
  return found == input.storages.end() ? otherwise : found->second;
}

static stepc::run::Array convert(const stepc::run::Array &array,
                                 Format storage) {
  if (array.storage == storage)
    return array;
  return toArray(toTensor(array).tensor, storage);
}

static Expected<stepc::run::Array>
pickArray(const Case &input, const ArrayMap &arrays, const std::string &role) {
  auto found = arrays.find(input.prefix + role);
  if (found == arrays.end())
    return makeError("array '" + input.prefix + role + "' is not given");
  return convert(found->second,
                 findStorage(input, role, "", found->second.storage));
}

/// Every array with the case's prefix must be one of those in `known`; names
/// with a further `/` are those of other cases.
static Error checkNames(const Case &input, const ArrayMap &arrays,
                        ArrayRef<std::string> known) {
  auto begin = arrays.lower_bound(input.prefix);
  for (auto it = begin; it != arrays.end(); ++it) {
    StringRef name = it->first;
    if (!name.consume_front(input.prefix))
      break;
    if (!name.contains('/') && !is_contained(known, name))
      return makeError("array '" + it->first + "' is none of " +
                       join(known, ", "));
  }
  return Error::success();
}

Expected<PreparedCase> stepc::run::prepare(const Case &input,
                                           const ArrayMap &arrays,
                                           OptimizerOp optimizer) {
  auto param = pickArray(input, arrays, "param");
  if (!param)
    return param.takeError();
  auto grad = pickArray(input, arrays, "grad");
  if (!grad)
    return grad.takeError();
  Format compute = param->storage == Format::F64 ? Format::F64 : Format::F32;
  PreparedCase prepared{{input.mode,
                         compute,
                         input.rule,
                         input.hypers,
                         input.options,
                         input.count,
                         false,
                         toTensor(*param),
                         toTensor(*grad),
                         {}},
                        input.steps,
                        std::move(*param),
                        std::move(*grad),
                        {}};

  auto states = makeInitialStates(optimizer, prepared.request);
  if (!states)
    return states.takeError();
  std::vector<std::string> known = {"param", "grad"};
  bool anyGiven = false;
  for (const InitialState &state : *states) {
    known.push_back(state.name);
    auto given = arrays.find(input.prefix + state.name);
    bool isGiven = given != arrays.end();
    anyGiven |= isGiven;
    Format storage = findStorage(input, "state", state.name,
                                 isGiven ? given->second.storage : compute);
    prepared.states.emplace_back(state.name,
                                 isGiven ? convert(given->second, storage)
                                         : toArray(state.tensor, storage));
  }
  prepared.request.fresh = input.fresh.value_or(!anyGiven);
  if (Error error = checkNames(input, arrays, known))
    return error;
  return prepared;
}
