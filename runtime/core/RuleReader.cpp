//===- RuleReader.cpp - the rules of a manifest -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ManifestReader.h"
#include "core/StateDims.h"

#include "stepc/kernel_abi.h"

#include <algorithm>

using namespace stepc;

static size_t readOptionName(const FieldReader &fields, const Json &value,
                             const std::string &where,
                             const Manifest &manifest) {
  size_t option =
      findName(manifest.options, fields.getString(value, "option", where));
  if (option == manifest.options.size())
    fields.bad(at(where, "option"), "is not an option");
  return option;
}

/// {"rank": true, ...}, {"extent": -1, ...} or {"option": name}; the first two
/// compare with a value, an option or another extent, the third with 0 if it
/// says nothing.
static GuardTerm readTerm(const FieldReader &fields, const Json &value,
                          const std::string &where, const Manifest &manifest) {
  GuardTerm term;
  if (value.find("rank")) {
    if (!fields.getBool(value, "rank", where))
      fields.bad(at(where, "rank"), "is not true");
  } else if (value.find("extent")) {
    term.subject = GuardTerm::Subject::Extent;
    term.extent = fields.getInteger(value, "extent", where);
  } else {
    term.subject = GuardTerm::Subject::Option;
    term.option = readOptionName(fields, value, where, manifest);
    if (!value.find("predicate"))
      return term;
  }
  term.predicate = fields.getPredicate(value, where);
  if (term.subject != GuardTerm::Subject::Option && value.find("option")) {
    term.other = GuardTerm::Other::Option;
    term.otherOption = readOptionName(fields, value, where, manifest);
    if (value.find("value") || value.find("other_extent"))
      fields.bad(where, "compares with an option and with something else");
  } else if (term.subject != GuardTerm::Subject::Option &&
             value.find("other_extent")) {
    term.other = GuardTerm::Other::Extent;
    term.otherExtent = fields.getInteger(value, "other_extent", where);
    if (value.find("value"))
      fields.bad(where, "compares with an extent and a value");
  } else {
    term.value = fields.getInteger(value, "value", where);
  }
  return term;
}

/// {"name": "r", "least_of": ["n", "m"], "per": 1}, and where they are part of
/// it "most", a number, and "option", an integer one.
static BoundDim readBoundDim(const FieldReader &fields, const Json &value,
                             const std::string &where, const Manifest &manifest,
                             const Rule &rule) {
  BoundDim dim;
  dim.name = fields.getString(value, "name", where);
  auto isKnown = [&](const std::string &name) {
    return std::any_of(
        rule.boundDims.begin(), rule.boundDims.end(),
        [&](const BoundDim &other) { return other.name == name; });
  };
  if (dim.name.empty() || dim.name == "1" || isKnown(dim.name) ||
      std::find(rule.dims.begin(), rule.dims.end(), dim.name) !=
          rule.dims.end())
    fields.bad(at(where, "name"), "is no new dim");
  for (const Json &of : fields.getArray(value, "least_of", where).elements) {
    auto found = std::find(rule.dims.begin(), rule.dims.end(), of.string);
    if (!of.is(Json::Kind::String) || found == rule.dims.end() ||
        of.string == "1" || of.string == "*" || of.string.rfind("...", 0) == 0)
      fields.bad(at(where, "least_of"),
                 "has an element that is no single dim of the rule");
    dim.leastOf.push_back(size_t(found - rule.dims.begin()));
  }
  if (dim.leastOf.empty())
    fields.bad(at(where, "least_of"), "is empty");
  if (value.find("most"))
    dim.most = fields.getInteger(value, "most", where);
  if (value.find("option")) {
    dim.option = readOptionName(fields, value, where, manifest);
    if (!manifest.options[*dim.option].integer)
      fields.bad(at(where, "option"), "is not an integer option");
  }
  dim.per = fields.getInteger(value, "per", where);
  if (dim.per < 1 || dim.most.value_or(1) < 1)
    fields.bad(where, "has a number below 1");
  return dim;
}

static void readBoundDims(const FieldReader &fields, const Json &value,
                          const std::string &where, const Manifest &manifest,
                          Rule &rule) {
  const Json &list = fields.getArray(value, "bound_dims", where);
  std::string place = at(where, "bound_dims");
  for (size_t i = 0; i < list.elements.size(); ++i)
    rule.boundDims.push_back(
        readBoundDim(fields, list.elements[i], at(place, i), manifest, rule));
  if (rule.boundDims.size() > STEPC_BOUND_DIMS_MOST)
    fields.bad(place, "has more than three dims");
}

/// {"name": "row", "dims": ["n", "1"], "init": 0.0, "guard": null}, where the
/// guard may be the name of an option.
static DeclaredState readState(const FieldReader &fields, const Json &value,
                               const std::string &where,
                               const Manifest &manifest, const Rule &rule) {
  DeclaredState state;
  state.name = fields.getString(value, "name", where);
  state.dims = fields.getDims(value, where);
  if (!followsFrom(rule, state.dims))
    fields.bad(at(where, "dims"), "does not follow from the rule's");
  state.initialValue = fields.getNumber(value, "init", where);
  const Json *guard = value.find("guard");
  if (!guard || guard->is(Json::Kind::Null))
    return state;
  state.guard =
      findName(manifest.options, fields.getString(value, "guard", where));
  if (state.guard == manifest.options.size())
    fields.bad(at(where, "guard"), "is not an option");
  return state;
}

static void readStates(const FieldReader &fields, const Json &value,
                       const std::string &where, const Manifest &manifest,
                       Rule &rule) {
  const Json &list = fields.getArray(value, "states", where);
  std::string place = at(where, "states");
  for (size_t i = 0; i < list.elements.size(); ++i)
    rule.states.push_back(
        readState(fields, list.elements[i], at(place, i), manifest, rule));
  if (hasTwins(rule.states))
    fields.bad(place, "has a name twice");
}

/// {"dims": ["n"], "line": 3, "column": 5}: what ranks cannot share out, and
/// where the definition says so.
static void readUnshardable(const FieldReader &fields, const Json &value,
                            const std::string &where, Rule &rule) {
  for (const Json &dim : fields.getArray(value, "dims", where).elements) {
    if (!dim.is(Json::Kind::String))
      fields.bad(at(where, "dims"), "has an element that is not a string");
    rule.unshardable.push_back(dim.string);
  }
  if (value.find("line"))
    rule.line = fields.getInteger(value, "line", where);
  if (value.find("column"))
    rule.column = fields.getInteger(value, "column", where);
}

/// {"number": -4, "divisor": 3, "period": 10, "dims": ["n", "n", "r"]}, where
/// divisor and period may be left out, and "guard" may name an option.
static CostTerm readCostTerm(const FieldReader &fields, const Json &value,
                             const std::string &where, const Manifest &manifest,
                             const Rule &rule) {
  CostTerm term;
  term.number = fields.getInteger(value, "number", where);
  if (value.find("divisor"))
    term.divisor = fields.getInteger(value, "divisor", where);
  if (value.find("period"))
    term.period = fields.getInteger(value, "period", where);
  if (term.divisor < 1 || term.period < 1)
    fields.bad(where, "has a number below 1");
  for (const Json &dim : fields.getArray(value, "dims", where).elements) {
    size_t index = 0;
    while (index < rule.dims.size() && rule.dims[index] != dim.string)
      ++index;
    if (index == rule.dims.size())
      index += findName(rule.boundDims, dim.string);
    // A number counts nothing that its place in the formula does not.
    if (dim.is(Json::Kind::String) && dim.string == "1")
      continue;
    if (!dim.is(Json::Kind::String) ||
        index == rule.dims.size() + rule.boundDims.size())
      fields.bad(at(where, "dims"),
                 "has an element that is not a dim of the rule");
    term.dims.push_back(index);
  }
  if (value.find("guard")) {
    term.guard =
        findName(manifest.options, fields.getString(value, "guard", where));
    if (term.guard == manifest.options.size())
      fields.bad(at(where, "guard"), "is not an option");
  }
  return term;
}

/// What a step costs; nothing in packages of an earlier compiler.
static void readCost(const FieldReader &fields, const Json &value,
                     const std::string &where, const Manifest &manifest,
                     Rule &rule) {
  auto read = [&](const char *key, std::vector<CostTerm> &terms) {
    const Json &list = fields.getArray(value, key, where);
    std::string place = at(where, key);
    for (size_t i = 0; i < list.elements.size(); ++i)
      terms.push_back(
          readCostTerm(fields, list.elements[i], at(place, i), manifest, rule));
  };
  read("flops", rule.flops);
  read("bytes", rule.bytes);
}

void stepc::readRules(const FieldReader &fields, const Json &root,
                      Manifest &manifest) {
  const Json &list = fields.getArray(root, "rules", "");
  for (size_t i = 0; i < list.elements.size(); ++i) {
    std::string where = at("rules", i);
    const Json &element = list.elements[i];
    Rule rule;
    rule.name = fields.getString(element, "name", where);
    rule.dims = fields.getDims(element, where);
    const Json &guard = fields.getArray(element, "guard", where);
    for (size_t k = 0; k < guard.elements.size(); ++k)
      rule.guard.push_back(readTerm(fields, guard.elements[k],
                                    at(at(where, "guard"), k), manifest));
    if (element.find("bound_dims"))
      readBoundDims(fields, element, where, manifest, rule);
    readStates(fields, element, where, manifest, rule);
    if (element.find("unshardable"))
      readUnshardable(fields, fields.getObject(element, "unshardable", where),
                      at(where, "unshardable"), rule);
    if (element.find("cost"))
      readCost(fields, fields.getObject(element, "cost", where),
               at(where, "cost"), manifest, rule);
    manifest.rules.push_back(std::move(rule));
  }
  if (list.elements.empty())
    fields.bad("rules", "is empty");
  if (hasTwins(manifest.rules))
    fields.bad("rules", "has a name twice");
}
