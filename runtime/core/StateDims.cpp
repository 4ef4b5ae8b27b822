//===- StateDims.cpp - dims of states beside those of their parameter ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/StateDims.h"

#include <algorithm>

using namespace stepc;

Reach stepc::getReach(const Rule &rule, const Dims &dims) {
  if (dims == rule.dims)
    return Reach::Full;
  return dims.empty() || dims == Dims{"1"} ? Reach::Single : Reach::Reduced;
}

static bool isLeading(const std::string &dim) {
  return dim.rfind("...", 0) == 0;
}

static bool isBound(const Rule &rule, const std::string &dim) {
  return std::any_of(rule.boundDims.begin(), rule.boundDims.end(),
                     [&](const BoundDim &bound) { return bound.name == dim; });
}

bool stepc::followsFrom(const Rule &rule, const Dims &dims) {
  if (getReach(rule, dims) != Reach::Reduced)
    return true;
  const Dims &whole = rule.dims;
  auto isSingle = [&](const std::string &dim) {
    return dim == "1" ||
           (!isLeading(dim) &&
            (std::find(whole.begin(), whole.end(), dim) != whole.end() ||
             isBound(rule, dim)));
  };
  bool known = dims.size() == whole.size();
  for (size_t i = 0; known && i < whole.size(); ++i)
    known = dims[i] == whole[i] || (!isLeading(whole[i]) && isSingle(dims[i]));
  return known;
}

void stepc::setReducedExtents(const Rule &rule, const Dims &dims,
                              const std::vector<int64_t> &boundExtents,
                              const int64_t *whole, int64_t rank,
                              int64_t *own) {
  std::copy_n(whole, rank, own);
  const Dims &names = rule.dims;
  // From the last dim on, for leading ones are the parameter's.
  for (int64_t d = 1; d <= int64_t(dims.size()) && d <= rank; ++d) {
    const std::string &dim = dims[dims.size() - size_t(d)];
    if (dim == names[names.size() - size_t(d)])
      continue;
    auto found = std::find(names.rbegin(), names.rend(), dim);
    if (dim == "1")
      own[rank - d] = 1;
    else if (found != names.rend())
      own[rank - d] = whole[size_t(rank - 1) - size_t(found - names.rbegin())];
    for (size_t i = 0; i < rule.boundDims.size(); ++i)
      if (rule.boundDims[i].name == dim)
        own[rank - d] = boundExtents[i];
  }
}
