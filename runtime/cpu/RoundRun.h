//===- RoundRun.h - the rounds of a step on the processor -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_ROUNDRUN_H
#define STEPC_CPU_ROUNDRUN_H

#include "core/Groups.h"
#include "cpu/Code.h"

#include <vector>

namespace stepc::cpu {

/// Combines statistics over tensors, and runs the calls of rounds on the arrays
/// of the groups. Allocates nothing.
class RoundRun {
public:
  RoundRun(const Manifest &manifest, const Code &code,
           std::vector<Group> &groups)
      : manifest(manifest), code(code), groups(groups) {}

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

private:
  bool runCall(const RoundCall &call, StepcRoundFunction function);
  void share(const RoundCall &call);

  const Manifest &manifest;
  const Code &code;
  std::vector<Group> &groups;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_ROUNDRUN_H
