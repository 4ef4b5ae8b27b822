//===- Sharding.h - what of a rule's values a rank has ----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SHARD_SHARDING_H
#define STEPC_PASSES_SHARD_SHARDING_H

#include "dialect/Step.h"

#include <string>
#include <vector>

namespace mlir::step {

/// Whether the rule has products of matrices, or states of other dims than the
/// param's: no rank can work on a part of them.
bool needsMatrices(RuleOp rule);

/// Dims of the rule's param that cannot be sharded, each once: all, and the
/// flat range, where it needs whole matrices; else a name that stands for two
/// dims, or an extent of 1, says too little of where a part lies. None where
/// the rule is elementwise, to which that makes no difference.
SmallVector<StringAttr> getUnshardableDims(RuleOp rule);

/// The first of these that the layout shards; null where none is.
StringAttr findUnshardableDim(RuleOp rule, LayoutAttr layout);

/// Why it cannot: "has a param of ... with 'n' twice, which cannot be sharded
/// over dp".
std::string describeUnshardable(RuleOp rule, LayoutAttr layout);

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

/// The sharded dims over which a rank has only a part of the scalar: those that
/// its reduction crosses, where the ranks do not combine it ("flat range" with
/// a flat layout); none where it is whole. Ranks that lie apart along other
/// axes have the same part, for what they had of other dims was combined
/// before. With n over "a" and m over "b":
///
///   %c = step.amax %g over [n] : [n, m]   across "a": the same on all of "a"
///   %s = step.sum %c : [1, m]             a part over m
///   %t = step.sum %g : [n, m]             a part over n and m
///
/// A statistic adds %s of the first rank of "a" alone, %t of every rank.
SmallVector<StringAttr> getPartialDims(RuleOp rule, Value value);

/// Over which axes a gradient is brought from where it lies outside of a step:
/// those over which its addends are, the param being whole there or not.
///
///   partial over all of `whole`   brought over `whole`, as a sum
///   partial over none of it       brought over `whole`, as it is
///   partial over others           summed over these, then
///
/// The sum over ranks that keep the same part comes last, so that it is of
/// parts.
struct EntryTransfers {
  using Axes = std::vector<std::string>;
  Axes scattered, sliced, reduced;

  EntryTransfers(ArrayRef<std::string> whole, ArrayRef<std::string> partial);
};

/// An exchange that a rule of the variant has, in its order: the operation's
/// name, over which axes, whether it has a wire, and whether it is of the
/// param.
struct PlannedTransfer {
  StringRef name;
  ArrayAttr over;
  bool sums;
  bool ofParam = false;
};

/// All of them, those of the gradient before that of the param.
SmallVector<PlannedTransfer> planTransfers(VariantAttr variant);

} // namespace mlir::step

#endif // STEPC_PASSES_SHARD_SHARDING_H
