//===- Rounds.cpp - what happens between segments -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Rounds.h"

#include "core/Fault.h"
#include "core/Status.h"

#include <algorithm>
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

void Rounds::begin() noexcept {
  for (Group &group : groups)
    group.active = group.activeHere;
  for (Group &group : groups)
    std::copy_n(group.getScalars(), group.updated.size(),
                group.updated.begin());
  // Without contributions a statistic is what a sum begins with.
  for (Group &group : groups)
    for (size_t s = 0; s < group.statistics.size(); ++s)
      group.statistics[s] = group.folds[s].getIdentity();
  for (Group &group : groups)
    for (TreeFold &fold : group.folds)
      if (!STEPC_FAULT("engine-statistic-not-cleared"))
        fold.clear();
}

void Rounds::add(size_t statistic, int64_t group, const double *contribution) {
  bool ofModel = manifest.statistics[statistic].scope == Scope::Model;
  TreeFold &fold = groups[ofModel ? 0 : group].folds[statistic];
  fold.add(contribution ? *contribution : fold.getIdentity());
}

void Rounds::combine(int64_t round) {
  for (size_t s = 0; s < manifest.statistics.size(); ++s) {
    if (!isCombined(s, round))
      continue;
    bool ofModel = manifest.statistics[s].scope == Scope::Model;
    double value = groups[0].folds[s].finish();
    for (Group &group : groups)
      group.statistics[s] =
          ofModel || STEPC_FAULT("engine-statistic-of-another-group")
              ? value
              : group.folds[s].finish();
  }
}

bool Rounds::run(int64_t round) {
  bool goOn = true;
  const std::vector<RoundCall> &calls = manifest.rounds[round].calls;
  for (size_t i = 0; i < calls.size(); ++i)
    goOn &= runCall(calls[i], package.getRoundFunction(round, i));
  return goOn;
}

/// Runs a call for the model, or for each group in which a tensor takes part.
bool Rounds::runCall(const RoundCall &call, StepcRoundFunction function) {
  bool skip = false;
  for (Group &group : groups) {
    if (call.scope == Scope::Group && !group.active &&
        !STEPC_FAULT("engine-idle-group-runs"))
      continue;
    skip |= function(group.hypers.data(), group.options.data(),
                     group.statistics.data(), group.getScalars(),
                     group.results.data(), group.updated.data()) != 0;
    if (call.scope == Scope::Model)
      break;
  }
  if (call.scope == Scope::Model)
    share(call);
  return !(skip && call.maySkip) || STEPC_FAULT("engine-skip-ignored");
}

/// What a call for the model did to the first group, to all.
void Rounds::share(const RoundCall &call) {
  const Group &first = groups.front();
  for (Group &group : groups) {
    for (size_t result : call.results)
      if (!STEPC_FAULT("engine-results-not-shared"))
        group.results[result] = first.results[result];
    for (const RoundCall::Update &update : call.updates)
      group.updated[update.scalar] = first.updated[update.scalar];
  }
}

void Rounds::end(bool skipped) noexcept {
  for (const Round &round : manifest.rounds)
    for (const RoundCall &call : round.calls)
      for (const RoundCall::Update &update : call.updates)
        if ((!skipped || update.always ||
             STEPC_FAULT("engine-skip-updates-scalars")) &&
            !(skipped && STEPC_FAULT("engine-always-update-lost")))
          for (Group &group : groups)
            group.getScalars()[update.scalar] = group.updated[update.scalar];
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
