//===- BoundDims.h - extents that follow from others --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_BOUNDDIMS_H
#define STEPC_CORE_BOUNDDIMS_H

#include "core/Manifest.h"

#include <cstdint>
#include <string>
#include <vector>

namespace stepc {

/// The extents of the rule's `boundDims` for a tensor of this whole shape,
/// under the values of its group's options. Of r = min(rank, n, m) with rank 4
/// and the shape (9, 3): 3. Throws STEPC_SHAPE_MISMATCH where one is 0 or less
/// and the tensor has elements.
std::vector<int64_t> getBoundExtents(const Manifest &manifest, const Rule &rule,
                                     const std::vector<int64_t> &options,
                                     const std::vector<int64_t> &shape,
                                     const std::string &tensor);

} // namespace stepc

#endif // STEPC_CORE_BOUNDDIMS_H
