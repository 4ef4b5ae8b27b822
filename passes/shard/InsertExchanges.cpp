//===- InsertExchanges.cpp - step-insert-exchanges ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/shard/EntryTransfers.h"
#include "passes/shard/Sharding.h"

#include "mlir/IR/Builders.h"

namespace mlir::step {
#define GEN_PASS_DEF_INSERTEXCHANGES
#include "passes/Passes.h.inc"
} // namespace mlir::step

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
                               ArrayRef<std::string> partial, bool cut)
    : scattered(select(partial, whole, true)),
      sliced(select(whole, partial, false)),
      reduced(select(partial, whole, false)) {
  if (cut)
    sliced.clear();
}

static EntryTransfers::Axes getNames(ArrayAttr axes) {
  EntryTransfers::Axes names;
  for (auto axis : axes.getAsRange<StringAttr>())
    names.push_back(axis.str());
  return names;
}

namespace {
/// Inserts what leads to the layout of one rule and back. Where one rank steps
/// the tensor that gets the whole gradient, and its sum where all have addends.
/// Invariant: `gradient` is what the rule is to use.
class Inserter {
public:
  Inserter(RuleOp rule, EntryAttr entry)
      : rule(rule), entry(entry), builder(rule.getContext()),
        gradient(rule.getArgumentOfKind(RoleKind::Grad)) {}

  void run();

private:
  template <typename OpT>
  void bring(ArrayRef<std::string> over, Type wire);
  void bringGradient();
  void takeParam();

  RuleOp rule;
  EntryAttr entry;
  OpBuilder builder;
  Value gradient;
};
} // namespace

template <typename OpT>
void Inserter::bring(ArrayRef<std::string> over, Type wire) {
  if (over.empty())
    return;
  SmallVector<StringRef> axes(over.begin(), over.end());
  gradient = OpT::create(builder, rule.getLoc(), gradient,
                         builder.getStrArrayAttr(axes), entry.getGradient(),
                         wire ? TypeAttr::get(wire) : TypeAttr());
}

void Inserter::bringGradient() {
  Value argument = gradient;
  const Type wire = entry.getWire();
  EntryTransfers::Axes whole = getNames(entry.getWhole());
  EntryTransfers transfers(whole, getNames(entry.getPartial()), entry.getCut());
  builder.setInsertionPointToStart(&rule.getBody().front());
  if (!rule.getVariantAttr().isOwned()) {
    bring<ReduceScatterOp>(transfers.scattered, wire);
    bring<AllSliceOp>(transfers.sliced, Type());
  } else {
    bring<ToOwnerOp>(whole, transfers.scattered.empty() ? Type() : wire);
  }
  bring<AllReduceOp>(transfers.reduced, wire);
  argument.replaceUsesWithIf(gradient, [](OpOperand &use) {
    return !isa<TransferOpInterface>(use.getOwner());
  });
}

void Inserter::takeParam() {
  if (entry.getWhole().empty())
    return;
  ReturnOp returned = rule.getReturn();
  builder.setInsertionPoint(returned);
  for (auto [operand, argument] :
       llvm::zip(returned->getOpOperands(), rule.getReturnedArguments())) {
    if (rule.getRole(argument).getKind() != RoleKind::Param)
      continue;
    if (!rule.getVariantAttr().isOwned())
      operand.set(AllGatherOp::create(builder, rule.getLoc(), operand.get(),
                                      entry.getWhole()));
    else
      operand.set(FromOwnerOp::create(builder, rule.getLoc(), operand.get(),
                                      entry.getWhole()));
  }
}

void Inserter::run() {
  bringGradient();
  takeParam();
}

namespace {
struct InsertExchanges : step::impl::InsertExchangesBase<InsertExchanges> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>())
      if (rule.isBound())
        if (EntryAttr entry = rule.getVariantAttr().getEntry())
          Inserter(rule, entry).run();
  }
};
} // namespace
