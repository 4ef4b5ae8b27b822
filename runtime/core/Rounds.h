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

/// What groups have of rounds, and what calls for the model ask of them.
class Rounds {
public:
  Rounds(const Manifest &manifest, std::vector<Group> &groups)
      : manifest(manifest), groups(groups) {}

  bool any() const { return !manifest.rounds.empty(); }

  /// Gives a new group what the others have of the model.
  void adopt(Group &group) const;

  /// Refuses groups that differ in what a call for the model reads.
  void requireEqualGroups() const;

  /// The index among a group's results, scalars behind them.
  size_t findScalar(const char *name) const;
  size_t findReport(const char *name) const;
  void setScalar(int64_t group, const char *name, double value);

private:
  const Manifest &manifest;
  std::vector<Group> &groups;
};

} // namespace stepc

#endif // STEPC_CORE_ROUNDS_H
