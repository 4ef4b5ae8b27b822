//===- Rounds.cpp - what happens between segments -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Rounds.h"

#include "core/Status.h"

#include <cmath>

using namespace stepc;

void Rounds::adopt(Group &group) const {
  if (groups.empty())
    return;
  const Group &first = groups.front();
  for (size_t i = 0; i < manifest.scalars.size(); ++i)
    if (manifest.scalars[i].scope == Scope::Model)
      group.getScalars()[i] = first.getScalars()[i];
  for (const Round &round : manifest.rounds)
    for (const RoundCall &call : round.calls)
      for (size_t result : call.results)
        if (call.scope == Scope::Model)
          group.results[result] = first.results[result];
}

void Rounds::requireEqualGroups() const {
  auto requireEqual = [&](const char *what, const std::string &name,
                          size_t group, double value, double first) {
    if (value != first && !(std::isnan(value) && std::isnan(first)))
      fail(STEPC_INVALID_ARGUMENT,
           "%s '%s' is %s in group 0 and %s in group %zu, but it is read "
           "for the whole model",
           what, name.c_str(), describeNumber(first).c_str(),
           describeNumber(value).c_str(), group);
  };
  for (const Round &round : manifest.rounds)
    for (const RoundCall &call : round.calls) {
      if (call.scope != Scope::Model)
        continue;
      for (size_t g = 1; g < groups.size(); ++g) {
        for (size_t i : call.hypers)
          requireEqual("hyper-parameter", manifest.hypers[i].name, g,
                       groups[g].hypers[i], groups[0].hypers[i]);
        for (size_t i : call.options)
          requireEqual("option", manifest.options[i].name, g,
                       double(groups[g].options[i]),
                       double(groups[0].options[i]));
      }
    }
}

/// The index of what has this name; refuses others.
template <typename T>
static size_t requireName(const std::vector<T> &list, const char *name,
                          const char *what, const Manifest &manifest) {
  if (!name)
    fail(STEPC_INVALID_ARGUMENT, "a %s without a name", what);
  std::string known;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].name == name)
      return i;
    known += (known.empty() ? "" : ", ") + list[i].name;
  }
  fail(STEPC_UNKNOWN_NAME, "optimizer '%s' has no %s '%s', it has: %s",
       manifest.optimizer.c_str(), what, name,
       known.empty() ? "none" : known.c_str());
}

size_t Rounds::findScalar(const char *name) const {
  return manifest.numResults +
         requireName(manifest.scalars, name, "scalar", manifest);
}

size_t Rounds::findReport(const char *name) const {
  return manifest
      .reports[requireName(manifest.reports, name, "report", manifest)]
      .result;
}

void Rounds::setScalar(int64_t group, const char *name, double value) {
  size_t scalar = requireName(manifest.scalars, name, "scalar", manifest);
  if (manifest.scalars[scalar].scope == Scope::Group) {
    groups[group].getScalars()[scalar] = value;
    return;
  }
  for (Group &each : groups)
    each.getScalars()[scalar] = value;
}
