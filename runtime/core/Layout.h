//===- Layout.h - how a tensor lies on the mesh --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_LAYOUT_H
#define STEPC_CORE_LAYOUT_H

#include "core/Manifest.h"
#include "core/Mesh.h"

#include "stepc/stepc.h"

#include <string>
#include <vector>

namespace stepc {

/// The whole of a tensor, and which part of it this rank has
/// (docs/sharding.md).
struct TensorLayout {
  /// Of the whole tensor.
  std::vector<int64_t> shape;
  /// For each dim the axes that shard it; all none where it is flat.
  std::vector<uint64_t> dimAxes;
  bool flat = false;
  uint64_t flatAxes = 0;
  /// For each dim where the rank's part begins; empty where nobody said so.
  std::vector<int64_t> start;
  /// With flat: the rank has elements [begin, end).
  int64_t begin = 0;
  int64_t end = 0;
  uint64_t distinctAxes = 0;

  /// All axes that shard it.
  uint64_t getAxes() const;
  /// The axes that shard the tensor's dims of this name of the rule's, or
  /// `flat`.
  uint64_t getAxes(const Dims &ruleDims, const std::string &name) const;
  /// The names of the rule's dims that are sharded, or `flat` alone; in the
  /// rule's order.
  Dims getShardedDims(const Dims &ruleDims) const;
};

/// "[n, m]" or "no dims".
std::string describeSharded(const Dims &dims);

/// What the binding says; without a layout the tensor is the parameter.
/// Refuses layouts that cannot be, or that the parameter does not fit. `tensor`
/// is its name in messages.
TensorLayout makeLayout(const Mesh &mesh, const StepcLayout *layout,
                        const DLTensor &param, const std::string &tensor);

/// The index of the rank's first element, in row-major order of the whole
/// tensor. Refuses a part of which nobody said where it begins.
int64_t requireFirstIndex(const TensorLayout &layout, const int64_t *extents,
                          const std::string &tensor);

/// Refuses to shard dims that the rule does not tell apart.
void requireShardable(const TensorLayout &layout, const Rule &rule,
                      const std::string &tensor);

} // namespace stepc

#endif // STEPC_CORE_LAYOUT_H
