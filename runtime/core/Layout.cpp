//===- Layout.cpp - how a tensor lies on the mesh ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Layout.h"

#include "core/Fault.h"
#include "core/Status.h"
#include "core/TensorView.h"

#include <algorithm>
#include <cstddef>

using namespace stepc;

/// The rule's name of dim `dim` of a tensor of this rank.
static const std::string &getDimName(const Dims &ruleDims, int64_t rank,
                                     int64_t dim) {
  // From the last dim on; what is left belongs to the first name.
  int64_t fromEnd =
      STEPC_FAULT("shard-dims-from-the-front") ? dim + 1 : rank - dim;
  int64_t index = int64_t(ruleDims.size()) - fromEnd;
  return ruleDims[size_t(std::max<int64_t>(index, 0))];
}

uint64_t TensorLayout::getAxes() const {
  uint64_t axes = flatAxes;
  for (uint64_t own : dimAxes)
    axes |= own;
  return axes;
}

uint64_t TensorLayout::getAxes(const Dims &ruleDims,
                               const std::string &name) const {
  if (name == kFlatRange)
    return flatAxes;
  uint64_t axes = 0;
  int64_t rank = int64_t(dimAxes.size());
  for (int64_t i = 0; i < rank; ++i)
    if (getDimName(ruleDims, rank, i) == name)
      axes |= dimAxes[size_t(i)];
  return axes;
}

Dims TensorLayout::getShardedDims(const Dims &ruleDims) const {
  if (flat)
    return {kFlatRange};
  Dims sharded;
  for (const std::string &name : ruleDims)
    if (getAxes(ruleDims, name))
      sharded.push_back(name);
  return sharded;
}

std::string stepc::describeSharded(const Dims &dims) {
  return dims.empty() ? "no dims" : describe(dims);
}

namespace {

/// Checks one layout; `param` is what the rank has of it.
class LayoutChecker {
public:
  LayoutChecker(const Mesh &mesh, const StepcLayout &given,
                const DLTensor &param, const std::string &tensor)
      : mesh(mesh), given(given), param(param), name(tensor.c_str()) {}

  TensorLayout run();

private:
  void requireFields() const;
  int64_t requireWhole() const;
  void useAxes(uint64_t axes);
  void requireDims() const;
  void requireStart() const;
  /// Not in the structure of older callers.
  const int64_t *getStart() const {
    return given.structSize < sizeof(StepcLayout) ? nullptr : given.start;
  }
  void requireRange(int64_t elements) const;
  std::string describeParam() const {
    return describeShape(param.shape, param.ndim);
  }
  std::string describeWhole() const {
    return describeShape(given.shape, given.ndim);
  }

  const Mesh &mesh;
  const StepcLayout &given;
  const DLTensor &param;
  const char *name;
  uint64_t usedAxes = 0;
  TensorLayout layout;
};

} // namespace

TensorLayout LayoutChecker::run() {
  requireFields();
  int64_t elements = requireWhole();
  layout.shape.assign(given.shape, given.shape + given.ndim);
  layout.dimAxes.assign(size_t(given.ndim), 0);
  layout.flat = given.flat != 0;
  layout.flatAxes = given.flatAxes;
  layout.distinctAxes = given.distinctAxes;
  if (const int64_t *start = getStart())
    layout.start.assign(start, start + given.ndim);
  if (given.dimAxes)
    std::copy_n(given.dimAxes, given.ndim, layout.dimAxes.begin());
  for (uint64_t axes : layout.dimAxes)
    useAxes(axes);
  useAxes(layout.flatAxes);
  useAxes(layout.distinctAxes);
  if (!layout.flat) {
    requireDims();
    requireStart();
    return std::move(layout);
  }
  requireRange(elements);
  layout.begin = given.begin;
  layout.end = given.begin + param.shape[0];
  return std::move(layout);
}

void LayoutChecker::requireFields() const {
  requireStructSize(&given, offsetof(StepcLayout, start), sizeof(StepcLayout),
                    "StepcLayout");
  if (given.ndim < 0 || (given.ndim > 0 && !given.shape))
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: the layout has rank %d and %s shape", name,
         int(given.ndim), given.shape ? "a" : "no");
  if (given.ndim > kMaxRank)
    fail(STEPC_SHAPE_MISMATCH,
         "tensor %s: the layout has rank %d, the most is %d", name,
         int(given.ndim), kMaxRank);
  if (given.flat != 0 && given.flat != 1)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: flat of the layout is %d, neither 0 nor 1", name,
         int(given.flat));
  if (given.flat && given.dimAxes)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: the layout is flat and names axes of dims", name);
  if (given.flat && !given.flatAxes)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: the layout is flat over no axis",
         name);
  if (!given.flat && given.flatAxes)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: the layout names axes of a flat range, but is not flat",
         name);
  if (given.flat && getStart())
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: the layout is flat and says where dims begin", name);
  if (!given.flat && given.begin != 0)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: the layout begins at %lld, but is not flat", name,
         static_cast<long long>(given.begin));
}

/// The number of elements of the whole tensor.
int64_t LayoutChecker::requireWhole() const {
  int64_t elements = countElements(given.shape, given.ndim);
  if (elements < 0)
    fail(STEPC_SHAPE_MISMATCH,
         "tensor %s: the layout has the impossible shape %s", name,
         describeWhole().c_str());
  return elements;
}

void LayoutChecker::useAxes(uint64_t axes) {
  for (int64_t i = 0; i < 64; ++i) {
    uint64_t bit = uint64_t(1) << i;
    if (!(axes & bit))
      continue;
    if (i >= mesh.getNumAxes())
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s: the layout names axis %lld, the mesh has %lld", name,
           static_cast<long long>(i),
           static_cast<long long>(mesh.getNumAxes()));
    if (usedAxes & bit)
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s: the layout names axis '%s' twice", name,
           mesh.getName(i).c_str());
    usedAxes |= bit;
  }
}

/// A dim that one rank has is whole; others are parts of any size.
void LayoutChecker::requireDims() const {
  if (param.ndim != given.ndim)
    fail(STEPC_SHAPE_MISMATCH,
         "tensor %s: parameter has shape %s, the whole tensor has %s", name,
         describeParam().c_str(), describeWhole().c_str());
  for (int32_t i = 0; i < given.ndim; ++i) {
    bool sharded = layout.dimAxes[size_t(i)] & mesh.getWideAxes();
    if (sharded ? param.shape[i] <= given.shape[i]
                : param.shape[i] == given.shape[i])
      continue;
    fail(STEPC_SHAPE_MISMATCH,
         sharded ? "tensor %s: parameter has shape %s, dim %d is larger than "
                   "that of the whole tensor, %s"
                 : "tensor %s: parameter has shape %s, dim %d is not sharded "
                   "and differs from that of the whole tensor, %s",
         name, describeParam().c_str(), int(i), describeWhole().c_str());
  }
}

void LayoutChecker::requireStart() const {
  const int64_t *start = getStart();
  for (int32_t i = 0; start && i < given.ndim; ++i)
    if (start[i] < 0 || start[i] > given.shape[i] - param.shape[i])
      fail(STEPC_SHAPE_MISMATCH,
           "tensor %s: parameter has shape %s, dim %d of it begins at %lld of "
           "the whole tensor's, %s",
           name, describeParam().c_str(), int(i),
           static_cast<long long>(start[i]), describeWhole().c_str());
}

void LayoutChecker::requireRange(int64_t elements) const {
  if (param.ndim != 1)
    fail(STEPC_SHAPE_MISMATCH,
         "tensor %s: parameter has shape %s, a flat range has one dim", name,
         describeParam().c_str());
  // Neither sum overflows: no extent is above 2^59.
  int64_t size = param.shape[0];
  if (given.begin < 0 || given.begin > elements - size)
    fail(STEPC_SHAPE_MISMATCH,
         "tensor %s: a range of %lld elements from %lld on is not inside the "
         "%lld of shape %s",
         name, static_cast<long long>(size),
         static_cast<long long>(given.begin), static_cast<long long>(elements),
         describeWhole().c_str());
  if (size != elements && !(layout.flatAxes & mesh.getWideAxes()))
    fail(STEPC_SHAPE_MISMATCH,
         "tensor %s: a range of %lld elements is not all %lld of shape %s, "
         "but no other rank has a part",
         name, static_cast<long long>(size), static_cast<long long>(elements),
         describeWhole().c_str());
}

TensorLayout stepc::makeLayout(const Mesh &mesh, const StepcLayout *layout,
                               const DLTensor &param,
                               const std::string &tensor) {
  if (layout)
    return LayoutChecker(mesh, *layout, param, tensor).run();
  TensorLayout whole;
  whole.shape.assign(param.shape, param.shape + param.ndim);
  whole.dimAxes.assign(size_t(param.ndim), 0);
  return whole;
}

int64_t stepc::requireFirstIndex(const TensorLayout &layout,
                                 const int64_t *extents,
                                 const std::string &tensor) {
  if (layout.flat)
    return layout.begin;
  int64_t index = 0, rank = int64_t(layout.shape.size());
  for (size_t i = 0; i < layout.shape.size(); ++i) {
    index *= layout.shape[i];
    if (!layout.start.empty())
      index += layout.start[i];
    else if (extents[i] != layout.shape[i])
      fail(STEPC_LAYOUT_UNSUPPORTED,
           "tensor %s: stochastic rounding needs to know where the part of "
           "shape %s begins in the whole of shape %s, which the layout does "
           "not say",
           tensor.c_str(), describeShape(extents, rank).c_str(),
           describeShape(layout.shape.data(), rank).c_str());
  }
  return index;
}

/// The package says what ranks cannot share out.
void stepc::requireShardable(const TensorLayout &layout, const Rule &rule,
                             const std::string &tensor) {
  auto isUnshardable = [&](const std::string &dim) {
    return std::find(rule.unshardable.begin(), rule.unshardable.end(), dim) !=
           rule.unshardable.end();
  };
  if (layout.flat && isUnshardable(kFlatRange))
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "tensor %s: this rank has a range of its elements, and rule '%s' of "
         "dims %s needs whole matrices",
         tensor.c_str(), rule.name.c_str(), describe(rule.dims).c_str());
  int64_t rank = int64_t(layout.dimAxes.size());
  for (int64_t i = 0; i < rank; ++i) {
    if (layout.dimAxes[size_t(i)] &&
        isUnshardable(getDimName(rule.dims, rank, i)))
      fail(STEPC_LAYOUT_UNSUPPORTED,
           "tensor %s: dim %lld is sharded, which rule '%s' of dims %s does "
           "not permit; one rank can step the whole tensor, bound as distinct "
           "over these axes",
           tensor.c_str(), static_cast<long long>(i), rule.name.c_str(),
           describe(rule.dims).c_str());
  }
}
