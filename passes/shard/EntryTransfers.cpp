//===- EntryTransfers.cpp - what an entry asks for ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Sharding.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::step;

/// Those of `axes` that are, or are not, among `others`.
static EntryTransfers::Axes select(ArrayRef<std::string> axes,
                                   ArrayRef<std::string> others, bool are) {
  EntryTransfers::Axes found;
  llvm::copy_if(axes, std::back_inserter(found), [&](const std::string &axis) {
    return llvm::is_contained(others, axis) == are;
  });
  return found;
}

EntryTransfers::EntryTransfers(ArrayRef<std::string> whole,
                               ArrayRef<std::string> partial)
    : scattered(select(whole, partial, true)),
      sliced(select(whole, partial, false)),
      reduced(select(partial, whole, false)) {}

static EntryTransfers::Axes getNames(ArrayAttr axes) {
  EntryTransfers::Axes names;
  for (auto axis : axes.getAsRange<StringAttr>())
    names.push_back(axis.str());
  return names;
}

SmallVector<PlannedTransfer> mlir::step::planTransfers(VariantAttr variant) {
  SmallVector<PlannedTransfer> planned;
  EntryAttr entry = variant.getEntry();
  if (!entry)
    return planned;
  Builder builder(variant.getContext());
  auto add = [&](StringRef name, const EntryTransfers::Axes &axes, bool sums,
                 bool ofParam = false) {
    SmallVector<StringRef> over(axes.begin(), axes.end());
    if (!over.empty())
      planned.push_back({name, builder.getStrArrayAttr(over), sums, ofParam});
  };
  EntryTransfers::Axes whole = getNames(entry.getWhole());
  EntryTransfers transfers(whole, getNames(entry.getPartial()));
  const bool isOwned = variant.isOwned();
  StringRef owner = ToOwnerOp::getOperationName();
  add(isOwned ? owner : ReduceScatterOp::getOperationName(),
      transfers.scattered, true);
  add(isOwned ? owner : AllSliceOp::getOperationName(), transfers.sliced,
      false);
  add(AllReduceOp::getOperationName(), transfers.reduced, true);
  add(isOwned ? FromOwnerOp::getOperationName()
              : AllGatherOp::getOperationName(),
      whole, false, /*ofParam=*/true);
  return planned;
}
