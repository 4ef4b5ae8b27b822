//===- Reduction.cpp - sums, means and maxima in their order -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Reduction.h"

#include "dialect/reference/Interval.h"

#include <array>
#include <limits>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

static constexpr size_t kSequenceLeaf = 64, kLaneLeaf = 1024, kLanes = 16;

static double getIdentity(ReductionKind kind) {
  return kind == ReductionKind::Amax ? -std::numeric_limits<double>::infinity()
                                     : 0.0;
}

static double combineTwo(ReductionKind kind, double x, double y) {
  return kind == ReductionKind::Amax ? maximum(x, y) : x + y;
}

static double combineInSequence(ReductionKind kind, ArrayRef<double> leaf) {
  double result = getIdentity(kind);
  for (double value : leaf)
    result = combineTwo(kind, result, value);
  return result;
}

static double combineInLanes(ReductionKind kind, ArrayRef<double> leaf) {
  std::array<double, kLanes> lanes;
  lanes.fill(getIdentity(kind));
  for (auto [index, value] : llvm::enumerate(leaf))
    lanes[index % kLanes] = combineTwo(kind, lanes[index % kLanes], value);
  for (size_t half = kLanes / 2; half != 0; half /= 2)
    for (size_t lane = 0; lane < half; ++lane)
      lanes[lane] = combineTwo(kind, lanes[lane], lanes[lane + half]);
  return lanes[0];
}

double mlir::step::reference::combine(ReductionKind kind, Order order,
                                      ArrayRef<double> values) {
  size_t leaf = order == Order::Lanes ? kLaneLeaf : kSequenceLeaf;
  std::vector<double> parts;
  for (; !values.empty();
       values = values.drop_front(std::min(leaf, values.size()))) {
    ArrayRef<double> part = values.take_front(leaf);
    parts.push_back(order == Order::Lanes ? combineInLanes(kind, part)
                                          : combineInSequence(kind, part));
  }
  if (parts.empty())
    return getIdentity(kind);
  while (parts.size() > 1) {
    std::vector<double> next;
    for (size_t index = 0; index + 1 < parts.size(); index += 2)
      next.push_back(combineTwo(kind, parts[index], parts[index + 1]));
    if (parts.size() % 2 != 0)
      next.push_back(parts.back());
    parts = std::move(next);
  }
  return parts.front();
}

/// `elements` reduced over the axis at `position`.
static std::vector<double> reduceAxis(ReductionKind kind, Order order,
                                      ArrayRef<double> elements,
                                      ArrayRef<Axis> axes, unsigned position) {
  int64_t outer = 1, inner = 1, extent = axes[position].extent;
  for (const Axis &axis : axes.take_front(position))
    outer *= axis.extent;
  for (const Axis &axis : axes.drop_front(position + 1))
    inner *= axis.extent;
  std::vector<double> result, values(extent);
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t j = 0; j < inner; ++j) {
      for (int64_t k = 0; k < extent; ++k)
        values[k] = elements[(i * extent + k) * inner + j];
      result.push_back(combine(kind, order, values));
    }
  return result;
}

/// Of one of the tensors that are reduced together, not divided.
static std::vector<double> reduceOne(ReductionKind kind,
                                     std::vector<double> elements,
                                     SmallVector<Axis> axes,
                                     ArrayRef<unsigned> positions) {
  // Lanes are for neighbours in memory: of the innermost named dim.
  unsigned innermost = axes.size();
  while (innermost > 0 && !axes[innermost - 1].named)
    --innermost;
  for (unsigned position : llvm::reverse(positions)) {
    Order order = position + 1 == innermost ? Order::Lanes : Order::Sequence;
    elements = reduceAxis(kind, order, elements, axes, position);
    axes[position].extent = 1;
  }
  return elements;
}

std::vector<double> mlir::step::reference::reduce(
    ReductionKind kind, std::vector<std::vector<double>> inputs,
    const SmallVector<Axis> &axes, ArrayRef<unsigned> positions) {
  std::vector<double> result;
  for (std::vector<double> &input : inputs) {
    std::vector<double> own =
        reduceOne(kind, std::move(input), axes, positions);
    if (result.empty())
      result = own;
    else
      for (auto [whole, part] : llvm::zip(result, own))
        whole = combineTwo(kind, whole, part);
  }
  double count = 1;
  for (unsigned position : positions)
    count *= static_cast<double>(axes[position].extent);
  if (kind == ReductionKind::Mean)
    for (double &element : result)
      element = element / count;
  return result;
}
