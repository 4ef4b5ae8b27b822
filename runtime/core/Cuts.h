//===- Cuts.h - which elements of tensors which rank steps ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All ranks compute the same from the same sizes.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_CUTS_H
#define STEPC_CORE_CUTS_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace stepc {

/// Of a tensor, for W ranks: rank r has elements [cuts[r], cuts[r + 1]).
using Cuts = std::vector<int64_t>;

/// Cuts tensors of these sizes as one line of elements, evenly, at multiples of
/// 16: kernels work on whole vectors. Two tensors of 10 and 30 elements over 2
/// ranks are a line of 40, of which rank 0 has 32: all of the first and [0, 22)
/// of the second.
std::vector<Cuts> cutLine(const std::vector<int64_t> &sizes, int64_t numRanks);

/// Where the same cuts are on a line of one size: 0, then the ends.
Cuts cutEvenly(int64_t size, int64_t numRanks);

/// How many rows are before those of a rank, of which each has ceil(numRows /
/// numRanks), as long as there are some.
int64_t countRowsBefore(int64_t rank, int64_t numRows, int64_t numRanks);

/// Rows of so many elements: each rank has ceil(numRows / numRanks), as long as
/// there are some. 5 rows over 4 ranks: 2, 2, 1, 0.
Cuts cutRows(int64_t numRows, int64_t rowSize, int64_t numRanks);

/// Moves cuts down to where blocks of elements begin: along rows of `columns`
/// each begins anew. Of blocks of 64 along rows of 100 they begin at 0, 64,
/// 100, 164, ..., and [0, 80, 150, 200] becomes [0, 64, 100, 200].
void alignCuts(int64_t columns, int64_t block, Cuts &cuts);

/// All of it for one rank.
Cuts giveWhole(int64_t size, int64_t owner, int64_t numRanks);

/// Who of so many ranks steps whole tensors of which a step costs so much
/// (StepCost::getTotal): the dearest first, each to who has least, the first of
/// them; of equal ones the first first. So no rank has more than 4/3 - 1/(3W)
/// of what the most loaded of W has at best (R. Graham: Bounds on
/// multiprocessing timing anomalies, 1969). Adds them to `loads`, what each
/// rank has already.
std::vector<int64_t> chooseOwners(const std::vector<double> &costs,
                                  size_t numRanks, std::vector<double> &loads);

/// What ranks own, by axes.
class Owners {
public:
  /// The axes over which parameters are whole, and those over which sums of
  /// theirs are made beside: ranks that share both have the same tensors there,
  /// and choose the same, whatever others they have.
  using Axes = std::pair<uint64_t, uint64_t>;

  /// The same as chooseOwners, but that those whose owner is not -1 have it.
  std::vector<int64_t> choose(Axes axes, const std::vector<double> &costs,
                              std::vector<int64_t> owners, int64_t numRanks);

private:
  std::map<Axes, std::vector<double>> loads;
};

} // namespace stepc

#endif // STEPC_CORE_CUTS_H
