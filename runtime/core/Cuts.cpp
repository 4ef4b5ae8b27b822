//===- Cuts.cpp - which elements of tensors which rank steps ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Cuts.h"

#include "core/Fault.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

using namespace stepc;

/// Elements: no vector of a kernel is longer.
static constexpr int64_t kUnit = 16;

Cuts stepc::cutEvenly(int64_t size, int64_t numRanks) {
  int64_t unit = STEPC_FAULT("transfer-cut-anywhere") ? 1 : kUnit;
  int64_t part = (size + numRanks * unit - 1) / (numRanks * unit) * unit;
  Cuts cuts;
  for (int64_t rank = 0; rank <= numRanks; ++rank)
    cuts.push_back(std::min(rank * part, size));
  return cuts;
}

std::vector<Cuts> stepc::cutLine(const std::vector<int64_t> &sizes,
                                 int64_t numRanks) {
  int64_t length = std::accumulate(sizes.begin(), sizes.end(), int64_t(0));
  const Cuts line = cutEvenly(length, numRanks);
  std::vector<Cuts> all;
  int64_t start = 0;
  for (int64_t size : sizes) {
    Cuts &own = all.emplace_back();
    for (int64_t cut : line)
      own.push_back(std::clamp<int64_t>(cut - start, 0, size));
    start += size;
  }
  return all;
}

int64_t stepc::countRowsBefore(int64_t rank, int64_t numRows,
                               int64_t numRanks) {
  return std::min(rank * ((numRows + numRanks - 1) / numRanks), numRows);
}

Cuts stepc::cutRows(int64_t numRows, int64_t rowSize, int64_t numRanks) {
  Cuts cuts;
  for (int64_t rank = 0; rank <= numRanks; ++rank)
    cuts.push_back(countRowsBefore(rank, numRows, numRanks) * rowSize);
  return cuts;
}

void stepc::alignCuts(int64_t columns, int64_t block, Cuts &cuts) {
  for (size_t i = 1; i + 1 < cuts.size(); ++i)
    if (cuts[i] != cuts.back())
      cuts[i] -= cuts[i] % columns % block;
}

Cuts stepc::giveWhole(int64_t size, int64_t owner, int64_t numRanks) {
  Cuts cuts;
  for (int64_t rank = 0; rank <= numRanks; ++rank)
    cuts.push_back(rank > owner ? size : 0);
  return cuts;
}

/// One that is empty counts too, or all of them would be the first rank's.
static double getLoad(double cost) { return std::max(cost, 1.0); }

std::vector<int64_t> stepc::chooseOwners(const std::vector<double> &costs,
                                         size_t numRanks,
                                         std::vector<double> &loads) {
  loads.resize(numRanks);
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    return costs[left] > costs[right];
  });
  std::vector<int64_t> owners(costs.size());
  for (size_t i : order) {
    auto least = std::min_element(loads.begin(), loads.end());
    if (STEPC_FAULT("transfer-first-owns-all"))
      least = loads.begin();
    *least += getLoad(costs[i]);
    owners[i] = least - loads.begin();
  }
  return owners;
}

std::vector<int64_t> Owners::choose(Axes axes, const std::vector<double> &costs,
                                    std::vector<int64_t> owners,
                                    int64_t numRanks) {
  std::vector<double> &own = loads[axes];
  own.resize(size_t(numRanks));
  std::vector<double> open;
  for (size_t i = 0; i < costs.size(); ++i)
    if (owners[i] >= 0)
      own[size_t(owners[i])] += getLoad(costs[i]);
    else
      open.push_back(costs[i]);
  std::vector<int64_t> found = chooseOwners(open, size_t(numRanks), own);
  auto next = found.begin();
  for (int64_t &owner : owners)
    if (owner < 0)
      owner = *next++;
  return owners;
}
