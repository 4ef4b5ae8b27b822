//===- ShardFaults.cpp - faults in what crosses ranks ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "Seed.h"
#include "SeedFault.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::faults;

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

/// A rank takes its part of a reduction for the whole: the first of each rule
/// that crosses ranks, or the last.
static bool keepLocal(ModuleOp module, bool last) {
  bool any = false;
  module.walk([&](RuleOp rule) {
    SmallVector<ReductionOpInterface> crossing;
    for (auto reduction : rule.getBody().front().getOps<ReductionOpInterface>())
      if (reduction.getAcrossAttr())
        crossing.push_back(reduction);
    if (crossing.empty() || (last && crossing.size() == 1))
      return;
    (last ? crossing.back() : crossing.front())->removeAttr("across");
    any = true;
  });
  return any;
}
static bool keepFirstLocal(ModuleOp module) { return keepLocal(module, false); }
static bool keepLastLocal(ModuleOp module) { return keepLocal(module, true); }

//===----------------------------------------------------------------------===//
// What is sent and received
//===----------------------------------------------------------------------===//

template <typename SeedT>
static bool seedReceives(ModuleOp module, SeedT &&seed) {
  return seedFirstOfEach<ProgramOp, ReceiveOp>(module, seed);
}

static bool setReceivedMean(ModuleOp module, bool mean) {
  return seedReceives(module, [&](ReceiveOp op) {
    bool was = op.getMean();
    op.setMean(mean);
    return was != mean;
  });
}
static bool loseReceivedDivision(ModuleOp module) {
  return setReceivedMean(module, false);
}
static bool addReceivedDivision(ModuleOp module) {
  return setReceivedMean(module, true);
}

/// Two that receive shares of one type receive each other's.
static bool receiveAnothers(ModuleOp module) {
  return seedFirst<ProgramOp>(module, [](ProgramOp program) {
    SmallVector<ReceiveOp> receives = getAll<ReceiveOp>(program);
    for (size_t k = 0; k < receives.size(); ++k)
      for (size_t other = k + 1; other < receives.size(); ++other) {
        ReceiveOp a = receives[k], b = receives[other];
        if (a.getShares().getTypes() != b.getShares().getTypes() ||
            getSegment(a) != getSegment(b))
          continue;
        SmallVector<Value> first(a.getShares());
        a.getSharesMutable().assign(b.getShares());
        b.getSharesMutable().assign(first);
        return true;
      }
    return false;
  });
}

//===----------------------------------------------------------------------===//
// Exchanges
//===----------------------------------------------------------------------===//

/// The largest of ranks' shares, and of what they are made of, for a sum.
static bool exchangeOtherwise(ModuleOp module) {
  bool any = false;
  module.walk([&](ExchangeOp exchange) {
    for (auto [share, result] :
         llvm::zip(exchange.getShares(), exchange.getResults())) {
      auto own = cast<ShareType>(share.getType());
      Combiner other = getOther(own.getCombiner());
      MLIRContext *context = own.getContext();
      auto combine = share.getDefiningOp<CombineOp>();
      combine.getPartial().setType(
          PartialType::get(context, other, own.getDims(), own.getKept()));
      auto type = ShareType::get(context, other, own.getDims(), own.getKept());
      share.setType(type);
      result.setType(type);
      any = true;
    }
  });
  return any;
}

/// Replaces the dims over which each share is exchanged.
template <typename ChangeT>
static bool changeExchanges(ModuleOp module, ChangeT &&change) {
  bool any = false;
  module.walk([&](ExchangeOp exchange) {
    auto program = cast<ProgramOp>(exchange->getParentOp());
    SmallVector<Attribute> over;
    for (auto own : exchange.getOver().getAsRange<ArrayAttr>()) {
      over.push_back(change(program, own));
      any |= over.back() != own;
    }
    exchange.setOverAttr(ArrayAttr::get(module.getContext(), over));
  });
  return any;
}

static ArrayAttr getSharded(ProgramOp program) {
  SmallVector<Attribute> dims;
  for (NamedAttribute dim : program.getVariant().getLayout().getDims())
    dims.push_back(dim.getName());
  return ArrayAttr::get(program.getContext(), dims);
}

/// Over the ranks of all sharded dims, also of those that stay.
static bool exchangeOverMore(ModuleOp module) {
  return changeExchanges(module, [](ProgramOp program, ArrayAttr own) {
    ArrayAttr all = getSharded(program);
    return own.size() == all.size() ? own : all;
  });
}

static bool exchangeOverFewer(ModuleOp module) {
  return changeExchanges(module, [](ProgramOp, ArrayAttr own) {
    if (own.size() < 2)
      return own;
    return ArrayAttr::get(own.getContext(), own.getValue().drop_back());
  });
}

/// Over the ranks of another dim.
static bool exchangeOverOther(ModuleOp module) {
  return changeExchanges(module, [](ProgramOp program, ArrayAttr own) {
    for (Attribute dim : getSharded(program))
      if (own.size() == 1 && dim != own[0])
        return ArrayAttr::get(own.getContext(), {dim});
    return own;
  });
}

//===----------------------------------------------------------------------===//
// Statistics and layouts
//===----------------------------------------------------------------------===//

/// Replaces what is said of contributions in sharded programs.
template <typename ChangeT>
static bool changePartial(ModuleOp module, ChangeT &&change) {
  bool any = false;
  module.walk([&](ContributeOp contribute) {
    auto program = dyn_cast<ProgramOp>(contribute->getParentOp());
    if (!program || !program.getVariant().getLayout())
      return;
    ArrayAttr own = contribute.getPartialAttr();
    ArrayAttr other = change(program, own);
    any |= own != other;
    contribute.setPartialAttr(other);
  });
  return any;
}

/// The whole is contributed, by every rank.
static bool markWhole(ModuleOp module) {
  return changePartial(module,
                       [](ProgramOp, ArrayAttr) { return ArrayAttr(); });
}

/// A rank's part over all sharded dims is contributed.
static bool markPartial(ModuleOp module) {
  return changePartial(
      module, [](ProgramOp program, ArrayAttr) { return getSharded(program); });
}

/// A part over some of the dims is taken for one over all of them.
static bool markAllDims(ModuleOp module) {
  return changePartial(module, [](ProgramOp program, ArrayAttr own) {
    return own ? getSharded(program) : own;
  });
}

/// Replaces the layouts' dims by what `change` makes of them.
template <typename ChangeT>
static bool changeLayouts(ModuleOp module, ChangeT &&change) {
  bool any = false;
  MLIRContext *context = module.getContext();
  module.walk([&](ProgramOp program) {
    VariantAttr variant = program.getVariant();
    if (!variant.getLayout())
      return;
    DictionaryAttr own = variant.getLayout().getDims();
    DictionaryAttr other = change(own);
    any |= other != own;
    program.setVariantAttr(VariantAttr::get(
        context, variant.getRule(), variant.getOptions(), variant.getCompute(),
        LayoutAttr::get(context, other), variant.getEntry()));
  });
  return any;
}

/// Programs of tensors whose columns are sharded are said to be for rows.
static bool exchangeLayouts(ModuleOp module) {
  return changeLayouts(module, [](DictionaryAttr own) {
    Attribute rows = own.get("n"), columns = own.get("m");
    if (bool(rows) == bool(columns))
      return own;
    Builder builder(own.getContext());
    return builder.getDictionaryAttr(
        builder.getNamedAttr(rows ? "m" : "n", rows ? rows : columns));
  });
}

/// The names of axes are for reports.
static bool renameAxes(ModuleOp module) {
  return changeLayouts(module, [](DictionaryAttr own) {
    Builder builder(own.getContext());
    SmallVector<NamedAttribute> dims;
    for (NamedAttribute dim : own) {
      std::string name = "other_" + dim.getName().str();
      dims.push_back(
          builder.getNamedAttr(dim.getName(), builder.getStrArrayAttr({name})));
    }
    return builder.getDictionaryAttr(dims);
  });
}

std::vector<Fault> faults::getShardFaults() {
  Stage shard = Stage::Shard, schedule = Stage::Schedule;
  return {
      {"shard-first-reduction-local", shard, "a part taken for the whole",
       keepFirstLocal},
      {"shard-last-reduction-local", shard, "the same of the last reduction",
       keepLastLocal},
      {"shard-mean-undivided", schedule, "a sum for a mean",
       loseReceivedDivision},
      {"shard-sum-divided", schedule, "a mean for a sum", addReceivedDivision},
      {"shard-received-anothers", schedule, "another exchange is received",
       receiveAnothers},
      {"shard-exchanged-otherwise", schedule, "the largest of parts for a sum",
       exchangeOtherwise},
      {"shard-over-more-ranks", schedule,
       "over ranks that have the same elements", exchangeOverMore},
      {"shard-over-fewer-ranks", schedule,
       "not over all that have other elements", exchangeOverFewer},
      {"shard-over-other-ranks", schedule, "over the ranks of another dim",
       exchangeOverOther},
      {"shard-statistics-whole", schedule, "parts are counted of one rank",
       markWhole},
      {"shard-statistics-partial", schedule,
       "the whole is counted of each rank", markPartial},
      {"shard-statistics-part-over-all", schedule,
       "a part over one dim is counted of each rank", markAllDims},
      {"shard-layout-of-another-dim", schedule, "columns sharded for rows",
       exchangeLayouts},
      {"control-shard-axes-renamed", schedule, "other names of axes",
       renameAxes},
  };
}
