//===- StateDims.h - dims of states beside those of their parameter -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_STATEDIMS_H
#define STEPC_CORE_STATEDIMS_H

#include "core/Manifest.h"

#include <cstdint>
#include <vector>

namespace stepc {

/// How the dims of an operand follow from the rule's.
Reach getReach(const Rule &rule, const Dims &dims);

/// Whether they can: an operand has as many dims, each of which is the rule's
/// in its place, another one of the rule's or its bound ones, or 1; or it is a
/// single element.
bool followsFrom(const Rule &rule, const Dims &dims);

/// The extents of an operand whose reach is Reduced, beside a tensor of `rank`
/// extents `whole`, into `own`: of each dim what the rule's dim of its name
/// has, and 1 of what is reduced. `boundExtents` as by getBoundExtents.
void setReducedExtents(const Rule &rule, const Dims &dims,
                       const std::vector<int64_t> &boundExtents,
                       const int64_t *whole, int64_t rank, int64_t *own);

} // namespace stepc

#endif // STEPC_CORE_STATEDIMS_H
