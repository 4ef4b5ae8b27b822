//===- Rounds.h - what happens between segments -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ROUNDS_H
#define STEPC_CORE_ROUNDS_H

#include "core/Groups.h"

#include <vector>

namespace stepc {

/// Combines statistics over tensors, and runs the calls of rounds on the arrays
/// of the groups. Allocates nothing but where a group is added.
class Rounds {
public:
  Rounds(const Package &package, std::vector<Group> &groups)
      : package(package), manifest(package.getManifest()), groups(groups) {}

  bool any() const { return !manifest.rounds.empty(); }

  /// Gives a new group what the others have of the model.
  void adopt(Group &group) const;

  /// Refuses groups that differ in what a call for the model reads.
  void requireEqualGroups() const;

  /// Begins a step. Groups in which a tensor takes part here are active.
  void begin() noexcept;

  /// Whether a statistic is combined in the round.
  bool isCombined(size_t statistic, int64_t round) const {
    return manifest.statistics[statistic].segment == round;
  }
  /// The next tensor's contribution, in the order of their ids, to statistics
  /// of the round; null: it counts as none.
  void add(size_t statistic, int64_t group, const double *contribution);
  /// Sets the statistics of the round from what was added.
  void combine(int64_t round);
  /// Runs the calls; false: the step is to be skipped.
  bool run(int64_t round);

  /// Takes over the scalars that the step updated.
  void end(bool skipped) noexcept;

  /// The index among a group's results, scalars behind them.
  size_t findScalar(const char *name) const;
  size_t findReport(const char *name) const;
  void setScalar(int64_t group, const char *name, double value);

private:
  bool runCall(const RoundCall &call, StepcRoundFunction function);
  void share(const RoundCall &call);

  const Package &package;
  const Manifest &manifest;
  std::vector<Group> &groups;
};

} // namespace stepc

#endif // STEPC_CORE_ROUNDS_H
