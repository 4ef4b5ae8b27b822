//===- RowLayout.cpp - the dims of a row --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/RowLayout.h"

#include "core/BoundTensor.h"
#include "core/Fault.h"
#include "core/TensorView.h"

#include <cstdlib>
#include <utility>

using namespace stepc;

size_t stepc::getLeadingOperand(const BoundTensor &tensor,
                                const Variant &variant) {
  for (size_t operand : variant.states)
    if (tensor.isCoded(operand) &&
        variant.operands[operand].reach == Reach::Full)
      return operand;
  return variant.param;
}

void RowLayout::compute(const int64_t *extents, int64_t numDims,
                        const int64_t *strides, int64_t operands,
                        int64_t leading) {
  rank = 0;
  words.clear();
  order.clear();
  for (int64_t i = 0; i < numDims; ++i) {
    if (extents[i] == 0)
      return;
    if (extents[i] > 1)
      order.push_back(i);
  }
  if (order.empty())
    return;

  // By insertion: stable, without memory, and dims are few and often in order.
  const int64_t *ownStrides = strides + leading * numDims;
  auto isOutside = [&](int64_t a, int64_t b) {
    return std::llabs(ownStrides[a]) > std::llabs(ownStrides[b]);
  };
  for (size_t i = 1; i < order.size(); ++i)
    for (size_t k = i; k > 0 && isOutside(order[k], order[k - 1]); --k)
      std::swap(order[k], order[k - 1]);

  // A dim joins the one inside it when each operand steps over exactly that.
  // From here on order[] names, for each remaining dim, its innermost part.
  auto joins = [&](int64_t outer, int64_t inner, int64_t innerExtent) {
    for (int64_t k = 0; k < operands; ++k)
      if (strides[k * numDims + outer] !=
          strides[k * numDims + inner] * innerExtent)
        return false;
    return true;
  };
  size_t first = order.size() - 1;
  words.assign(order.size(), 0);
  words[first] = extents[order[first]];
  for (size_t i = order.size() - 1; i-- > 0;) {
    if (joins(order[i], order[first], words[first])) {
      words[first] *= extents[order[i]];
      continue;
    }
    --first;
    order[first] = order[i];
    words[first] = extents[order[i]];
  }
  words.erase(words.begin(), words.begin() + first);
  order.erase(order.begin(), order.begin() + first);

  rank = int64_t(order.size());
  bool unit = rank == 1;
  for (int64_t k = 0; k < operands; ++k)
    for (int64_t dim : order) {
      words.push_back(strides[k * numDims + dim]);
      unit &= words.back() == 1;
    }
  if (unit) {
    rank = 0;
    words.clear();
  }
}

void RowLayout::computeTiles(const int64_t *extents, int64_t numDims,
                             const int64_t *strides, const Variant &variant) {
  rank = 0;
  words.clear();
  bool contiguous = true, empty = false;
  for (int64_t i = 0; i < numDims; ++i)
    empty |= extents[i] == 0;
  for (size_t k = 0; k < variant.operands.size(); ++k)
    if (variant.operands[k].reach == Reach::Full)
      contiguous &=
          isRowMajor(extents, numDims, strides + int64_t(k) * numDims);
  if (contiguous || empty || STEPC_FAULT("engine-strides-ignored"))
    return;
  rank = numDims;
  words.assign(extents, extents + numDims);
  words.insert(words.end(), strides,
               strides + int64_t(variant.operands.size()) * numDims);
}
