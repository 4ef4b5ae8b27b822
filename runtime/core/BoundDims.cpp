//===- BoundDims.cpp - extents that follow from others ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/BoundDims.h"

#include "core/Status.h"
#include "core/TensorView.h"
#include "core/Tiles.h"

#include <algorithm>
#include <limits>

using namespace stepc;

std::vector<int64_t> stepc::getBoundExtents(const Manifest &manifest,
                                            const Rule &rule,
                                            const std::vector<int64_t> &options,
                                            const std::vector<int64_t> &shape,
                                            const std::string &tensor) {
  std::vector<int64_t> extents;
  if (rule.boundDims.empty())
    return extents;
  int64_t rank = int64_t(shape.size());
  TileExtents own = getTileExtents(rule.dims, shape.data(), rank);
  for (const BoundDim &dim : rule.boundDims) {
    int64_t least = dim.most.value_or(std::numeric_limits<int64_t>::max());
    if (dim.option)
      least = std::min(least, options[*dim.option]);
    for (size_t index : dim.leastOf)
      least = std::min(least, own[index]);
    int64_t extent = least <= 0 ? least : (least - 1) / dim.per + 1;
    if (extent < 0 || (extent == 0 && countElements(shape.data(), rank) > 0)) {
      std::string words;
      if (dim.option)
        words = " with option '" + manifest.options[*dim.option].name +
                "' = " + std::to_string(options[*dim.option]);
      fail(STEPC_SHAPE_MISMATCH,
           "tensor %s: dim '%s' of rule '%s' is %lld for shape %s%s",
           tensor.c_str(), dim.name.c_str(), rule.name.c_str(),
           static_cast<long long>(extent),
           describeShape(shape.data(), rank).c_str(), words.c_str());
    }
    extents.push_back(extent);
  }
  return extents;
}
