//===- Bounds.cpp - tensors of intervals, and their reductions -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

static constexpr double notNumber = std::numeric_limits<double>::quiet_NaN();

Bounds mlir::step::reference::roundTo(Format format, Bounds bounds) {
  for (Interval &element : bounds.elements)
    element = roundTo(format, element);
  return bounds;
}

Bounds mlir::step::reference::toBounds(const Tensor &tensor) {
  Bounds bounds{tensor.shape, {}};
  for (double element : tensor.elements)
    bounds.elements.push_back(Interval::of(element));
  return bounds;
}

Interval mlir::step::reference::combine(ReductionKind kind,
                                        ArrayRef<Interval> values) {
  if (kind == ReductionKind::Amax) {
    Interval result = Interval::of(-inf);
    for (Interval value : values)
      result = maximum(result, value);
    return result;
  }
  // Added to +0.0 a value stays what it is.
  if (values.size() == 1)
    return values.front();
  // n additions, each wrong by half a unit of a partial sum at most; and so are
  // those that are made here.
  Interval result = {0.0, 0.0, false};
  double size = 0.0;
  for (Interval value : values) {
    if (noNumbers({result, value})) {
      result = Interval::of(notNumber);
      continue;
    }
    bool hasNan = result.nan || value.nan ||
                  (holds(result, inf) && holds(value, -inf)) ||
                  (holds(result, -inf) && holds(value, inf));
    double low = result.low + value.low, high = result.high + value.high;
    // Inf - Inf of end points that are alone is NaN and nothing else.
    if (hasNan && allPoints({result, value}) && std::isnan(low)) {
      result = Interval::of(notNumber);
      continue;
    }
    result = {std::isnan(low) ? -inf : low, std::isnan(high) ? inf : high,
              hasNan};
    size += std::max(std::fabs(value.low), std::fabs(value.high));
  }
  if (!result.hasNumbers())
    return result;
  double error =
      std::isinf(size) ? 0.0 : 0x1p-51 * double(values.size()) * size;
  // A sum of one order may overflow where another does not.
  bool large = size > 0x1p1022 && !std::isinf(size);
  return {large && result.low < 0.0 ? -inf : result.low - error,
          large && result.high > 0.0 ? inf : result.high + error, result.nan};
}

std::vector<Interval> mlir::step::reference::reduce(
    ReductionKind kind, ArrayRef<std::vector<Interval>> inputs,
    ArrayRef<Axis> axes, ArrayRef<unsigned> positions) {
  Shape from, to;
  double count = 1;
  for (auto [position, axis] : llvm::enumerate(axes)) {
    bool reduced = llvm::is_contained(positions, position);
    from.push_back(axis.extent);
    to.push_back(reduced ? 1 : axis.extent);
    count *= reduced ? static_cast<double>(axis.extent) : 1.0;
  }
  std::vector<std::vector<Interval>> parts(getNumElements(to));
  for (ArrayRef<Interval> elements : inputs)
    for (auto [index, element] : llvm::enumerate(elements))
      parts[getBroadcastIndex(to, from, static_cast<int64_t>(index))].push_back(
          element);
  std::vector<Interval> result;
  for (ArrayRef<Interval> part : parts) {
    Interval whole = combine(kind, part);
    result.push_back(kind == ReductionKind::Mean
                         ? divide(whole, Interval::of(count), Format::F64)
                         : whole);
  }
  return result;
}
