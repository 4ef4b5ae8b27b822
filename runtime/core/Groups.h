//===- Groups.h - parameter groups ----------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_GROUPS_H
#define STEPC_CORE_GROUPS_H

#include "core/Package.h"
#include "core/TreeFold.h"

#include "stepc/stepc.h"

#include <vector>

namespace stepc {

/// Hyper-parameters and options that some tensors share, and what rounds work
/// on. What is of the model is the same in each group.
struct Group {
  /// One value for each of the manifest's options, derived ones included.
  std::vector<int64_t> options;
  std::vector<double> hypers;
  /// The results of rounds, NaN as long as there are none, and behind them the
  /// scalars.
  std::vector<double> results;
  size_t numResults = 0;
  std::vector<double> statistics;
  /// The scalars as the step under way leaves them.
  std::vector<double> updated;
  /// One for each statistic: the sum over tensors, while it is made.
  std::vector<TreeFold> folds;
  /// Whether a tensor of the group takes part in the step: on this rank, and on
  /// any.
  bool activeHere = false;
  bool active = false;

  double *getScalars() { return results.data() + numResults; }
  const double *getScalars() const { return results.data() + numResults; }
};

/// The hyper-parameters, those of the manifest where none are given.
std::vector<double> makeHypers(const Manifest &manifest, const double *hypers,
                               int64_t numHypers);

/// A value of each of the manifest's options, derived ones included. Refuses
/// options that there are not, and values that they cannot have.
std::vector<int64_t> makeOptions(const Manifest &manifest,
                                 const std::vector<double> &hypers,
                                 const StepcOption *options,
                                 int64_t numOptions);

/// Makes a group from the arguments of stepcPlanAddGroup. Refuses options that
/// no variant of the package has.
Group makeGroup(const Package &package, const StepcOption *options,
                int64_t numOptions, const double *hypers, int64_t numHypers);

/// Sets the hyper-parameters; refuses to change a derived option.
void setHypers(const Package &package, int64_t id, Group &group,
               const double *hypers, int64_t numHypers);

} // namespace stepc

#endif // STEPC_CORE_GROUPS_H
