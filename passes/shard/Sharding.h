//===- Sharding.h - what of a rule's values a rank has -----------*- C++
//-*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SHARD_SHARDING_H
#define STEPC_PASSES_SHARD_SHARDING_H

#include "dialect/Step.h"

namespace mlir::step {

/// Dims of the rule's param that cannot be sharded, each once: a name that
/// stands for two dims, or an extent of 1, says too little of where a part
/// lies. None where the rule is elementwise, to which that makes no difference.
SmallVector<StringAttr> getUnshardableDims(RuleOp rule);

/// The first of these that the layout shards; null where none is.
StringAttr findUnshardableDim(RuleOp rule, LayoutAttr layout);

/// The attribute of a rule, and of its program, with the layouts that it cannot
/// have, under which one rank steps the whole tensor.
constexpr StringLiteral kOwnedLayouts = "owned_layouts";

/// The sharded dims of the param, by their names in the bound rule, that the
/// reduction reduces: a rank's result is only a part of it. With a flat layout
/// kFlatRange for a value of the param's dims; others are whole on every rank.
SmallVector<StringAttr> getCrossedDims(RuleOp rule,
                                       ReductionOpInterface reduction);

/// The axes that shard these dims.
SmallVector<Attribute> getAxes(LayoutAttr layout, ArrayRef<StringAttr> dims);

/// Whether the result goes only to statistics that are reduced the same way,
/// so that parts of it may be contributed as they are.
bool isOnlyContributed(ReductionOpInterface reduction);

/// Whether the value is a rank's part of a reduction.
bool isPartial(RuleOp rule, Value value);

} // namespace mlir::step

#endif // STEPC_PASSES_SHARD_SHARDING_H
