//===- StepCost.h - what a step of a tensor costs -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_STEPCOST_H
#define STEPC_CORE_STEPCOST_H

#include "core/Manifest.h"

#include <cstdint>
#include <string>
#include <vector>

namespace stepc {

/// What a byte that is moved is worth in FLOPs of products: about what machines
/// can do of one in the time of the other. A product of matrices of a few
/// hundred rows, of which each element is 2 * 320 FLOPs, so is worth 64 bytes
/// an element.
inline constexpr int64_t kFlopsOfByte = 10;

/// Of a step of a tensor. Numbers are of real FLOPs and bytes but for what a
/// rule does in some steps alone, which counts with its share.
struct StepCost {
  double flops = 0.0;
  double bytes = 0.0;

  /// On one scale, in FLOPs.
  double getTotal() const { return flops + double(kFlopsOfByte) * bytes; }
};

/// Of a whole tensor of this shape, or of a part of it that is one to the rule,
/// under the values of its group's options: what the manifest says of the rule
/// (docs/statistics.md). Depends on nothing else, so all ranks find the same.
/// Throws as getBoundExtents.
StepCost getStepCost(const Manifest &manifest, const Rule &rule,
                     const std::vector<int64_t> &options,
                     const std::vector<int64_t> &shape,
                     const std::string &tensor);

} // namespace stepc

#endif // STEPC_CORE_STEPCOST_H
