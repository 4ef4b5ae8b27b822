//===- RoundRun.cpp - the rounds of a step on the processor ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/RoundRun.h"

#include "core/Fault.h"

#include <algorithm>

using namespace stepc;
using namespace stepc::cpu;

void RoundRun::begin() noexcept {
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

void RoundRun::add(size_t statistic, int64_t group,
                   const double *contribution) {
  bool ofModel = manifest.statistics[statistic].scope == Scope::Model;
  TreeFold &fold = groups[ofModel ? 0 : group].folds[statistic];
  fold.add(contribution ? *contribution : fold.getIdentity());
}

void RoundRun::combine(int64_t round) {
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

bool RoundRun::run(int64_t round) {
  bool goOn = true;
  const std::vector<RoundCall> &calls = manifest.rounds[round].calls;
  for (size_t i = 0; i < calls.size(); ++i)
    goOn &= runCall(calls[i], code.getRoundFunction(round, i));
  return goOn;
}

/// Runs a call for the model, or for each group in which a tensor takes part.
bool RoundRun::runCall(const RoundCall &call, StepcRoundFunction function) {
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
void RoundRun::share(const RoundCall &call) {
  const Group &first = groups.front();
  for (Group &group : groups) {
    for (size_t result : call.results)
      if (!STEPC_FAULT("engine-results-not-shared"))
        group.results[result] = first.results[result];
    for (const RoundCall::Update &update : call.updates)
      group.updated[update.scalar] = first.updated[update.scalar];
  }
}

void RoundRun::end(bool skipped) noexcept {
  for (const Round &round : manifest.rounds)
    for (const RoundCall &call : round.calls)
      for (const RoundCall::Update &update : call.updates)
        if ((!skipped || update.always ||
             STEPC_FAULT("engine-skip-updates-scalars")) &&
            !(skipped && STEPC_FAULT("engine-always-update-lost")))
          for (Group &group : groups)
            group.getScalars()[update.scalar] = group.updated[update.scalar];
}
