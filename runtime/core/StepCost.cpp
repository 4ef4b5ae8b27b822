//===- StepCost.cpp - what a step of a tensor costs ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/StepCost.h"

#include "core/BoundDims.h"
#include "core/TensorView.h"
#include "core/Tiles.h"

using namespace stepc;

static double add(const std::vector<CostTerm> &terms,
                  const std::vector<int64_t> &options,
                  const std::vector<int64_t> &extents) {
  double sum = 0.0;
  for (const CostTerm &term : terms) {
    if (term.guard && options[*term.guard] == 0)
      continue;
    double own = double(term.number);
    for (size_t dim : term.dims)
      own *= double(extents[dim]);
    sum += own / (double(term.divisor) * double(term.period));
  }
  return sum;
}

StepCost stepc::getStepCost(const Manifest &manifest, const Rule &rule,
                            const std::vector<int64_t> &options,
                            const std::vector<int64_t> &shape,
                            const std::string &tensor) {
  TileExtents own =
      getTileExtents(rule.dims, shape.data(), int64_t(shape.size()));
  std::vector<int64_t> extents(own.begin(), own.begin() + rule.dims.size());
  std::vector<int64_t> bound =
      getBoundExtents(manifest, rule, options, shape, tensor);
  extents.insert(extents.end(), bound.begin(), bound.end());
  StepCost cost{add(rule.flops, options, extents),
                add(rule.bytes, options, extents)};
  // A manifest of an earlier compiler: read and written once.
  if (rule.bytes.empty())
    cost.bytes = 8.0 * double(countElements(shape.data(), shape.size()));
  return cost;
}
