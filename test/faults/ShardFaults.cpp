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
static bool seedSends(ModuleOp module, SeedT &&seed) {
  return seedFirstOfEach<ProgramOp, CombineOp>(module, [&](CombineOp op) {
    return op.getExchange().has_value() && seed(op);
  });
}

template <typename SeedT>
static bool seedReceives(ModuleOp module, SeedT &&seed) {
  return seedFirstOfEach<ProgramOp, ReceiveOp>(module, seed);
}

static bool sendNothing(ModuleOp module) {
  return seedSends(module, [](CombineOp op) {
    op.erase();
    return true;
  });
}

static bool receiveNothing(ModuleOp module) {
  return seedReceives(module, [](ReceiveOp op) {
    op.erase();
    return true;
  });
}

static bool setMean(ModuleOp module, bool mean) {
  return seedReceives(module, [&](ReceiveOp op) {
    bool was = op.getMean();
    op.setMean(mean);
    return was != mean;
  });
}
static bool loseDivision(ModuleOp module) { return setMean(module, false); }
static bool addDivision(ModuleOp module) { return setMean(module, true); }

static Combiner getOther(Combiner combiner) {
  return combiner == Combiner::Sum ? Combiner::Amax : Combiner::Sum;
}

static bool sendOtherwise(ModuleOp module) {
  return seedSends(module, [](CombineOp op) {
    op.setCombiner(getOther(op.getCombiner()));
    return true;
  });
}

static bool receiveOtherwise(ModuleOp module) {
  return seedReceives(module, [](ReceiveOp op) {
    op.setCombiner(getOther(op.getCombiner()));
    return true;
  });
}

/// A segment before the one that waits for the round.
static bool receiveEarly(ModuleOp module) {
  return seedReceives(module, [](ReceiveOp op) {
    int64_t segment = op.getSegment();
    if (segment == 0)
      return false;
    op.setSegment(segment - 1);
    return true;
  });
}

/// Two that receive the same number of words receive each other's.
static bool receiveAnothers(ModuleOp module) {
  return seedFirst<ProgramOp>(module, [](ProgramOp program) {
    SmallVector<ReceiveOp> receives(program.getBody().getOps<ReceiveOp>());
    for (size_t k = 0; k < receives.size(); ++k)
      for (size_t other = k + 1; other < receives.size(); ++other) {
        ReceiveOp a = receives[k], b = receives[other];
        if (a.getLevel() != b.getLevel() || a.getSegment() != b.getSegment())
          continue;
        ArrayAttr first = a.getExchangesAttr();
        a.setExchangesAttr(b.getExchangesAttr());
        b.setExchangesAttr(first);
        return true;
      }
    return false;
  });
}

/// A vector of rows is received as the columns' or the other way round.
static bool receiveOtherLevel(ModuleOp module) {
  return seedReceives(module, [](ReceiveOp op) {
    if (op.getLevel() == Level::Rows)
      op.setLevel(Level::Columns);
    else if (op.getLevel() == Level::Columns)
      op.setLevel(Level::Rows);
    else
      return false;
    return true;
  });
}

//===----------------------------------------------------------------------===//
// Exchanges
//===----------------------------------------------------------------------===//

/// Replaces the exchanges of all programs by what `change` makes of them.
template <typename ChangeT>
static bool changeExchanges(ModuleOp module, ChangeT &&change) {
  bool any = false;
  module.walk([&](ProgramOp program) {
    SmallVector<Attribute> buffers;
    for (auto buffer : program.getWorkspace().getAsRange<BufferAttr>()) {
      ExchangeAttr own = buffer.getExchange();
      ExchangeAttr other = own ? change(program, own) : own;
      any |= other != own;
      buffers.push_back(BufferAttr::get(module.getContext(), buffer.getName(),
                                        buffer.getSize(), buffer.getElement(),
                                        buffer.getLive(), other));
    }
    program.setWorkspaceAttr(ArrayAttr::get(module.getContext(), buffers));
  });
  return any;
}

static bool exchangeOtherwise(ModuleOp module) {
  return changeExchanges(module, [](ProgramOp, ExchangeAttr own) {
    return ExchangeAttr::get(own.getContext(), own.getRound(), own.getDims(),
                             getOther(own.getCombiner()));
  });
}

static bool moveRounds(ModuleOp module, int64_t by) {
  return changeExchanges(module, [&](ProgramOp, ExchangeAttr own) {
    return ExchangeAttr::get(own.getContext(),
                             std::max<int64_t>(own.getRound() + by, 0),
                             own.getDims(), own.getCombiner());
  });
}
static bool exchangeEarlier(ModuleOp module) { return moveRounds(module, -1); }
static bool exchangeLater(ModuleOp module) { return moveRounds(module, 1); }

static SmallVector<StringAttr> getSharded(ProgramOp program) {
  SmallVector<StringAttr> dims;
  for (NamedAttribute dim : program.getVariant().getLayout().getDims())
    dims.push_back(dim.getName());
  return dims;
}

/// Over the ranks of all sharded dims, also of those that stay.
static bool exchangeOverMore(ModuleOp module) {
  return changeExchanges(module, [](ProgramOp program, ExchangeAttr own) {
    if (own.getDims().size() == getSharded(program).size())
      return own;
    return ExchangeAttr::get(own.getContext(), own.getRound(),
                             getSharded(program), own.getCombiner());
  });
}

static bool exchangeOverFewer(ModuleOp module) {
  return changeExchanges(module, [](ProgramOp, ExchangeAttr own) {
    if (own.getDims().size() < 2)
      return own;
    return ExchangeAttr::get(own.getContext(), own.getRound(),
                             own.getDims().drop_back(), own.getCombiner());
  });
}

/// Over the ranks of another dim.
static bool exchangeOverOther(ModuleOp module) {
  return changeExchanges(module, [](ProgramOp program, ExchangeAttr own) {
    if (own.getDims().size() != 1)
      return own;
    for (StringAttr dim : getSharded(program))
      if (dim != own.getDims().front())
        return ExchangeAttr::get(own.getContext(), own.getRound(), {dim},
                                 own.getCombiner());
    return own;
  });
}

//===----------------------------------------------------------------------===//
// Statistics and layouts
//===----------------------------------------------------------------------===//

/// What is contributed is a rank's part over all sharded dims, or the whole, as
/// `partial` says.
static bool markStatistics(ModuleOp module, bool partial) {
  bool any = false;
  module.walk([&](ProgramOp program) {
    if (!program.getVariant().getLayout())
      return;
    SmallVector<int64_t> marked;
    ArrayRef<int64_t> triples = program.getContributions();
    for (size_t k = 0; partial && k < triples.size(); k += 3)
      for (size_t dim = 0; dim < getSharded(program).size(); ++dim)
        marked.append({triples[k], int64_t(dim)});
    any |= ArrayRef(marked) != program.getPartialStatistics();
    program.setPartialStatistics(marked);
  });
  return any;
}
static bool markWhole(ModuleOp module) { return markStatistics(module, false); }
static bool markPartial(ModuleOp module) {
  return markStatistics(module, true);
}

/// A part over some of the dims is taken for one over all of them.
static bool markAllDims(ModuleOp module) {
  bool any = false;
  module.walk([&](ProgramOp program) {
    SmallVector<int64_t> marked(program.getPartialStatistics());
    for (size_t k = 0; k + 1 < program.getPartialStatistics().size(); k += 2)
      for (size_t dim = 0; dim < getSharded(program).size(); ++dim)
        if (int64_t(dim) != marked[k + 1])
          marked.append({marked[k], int64_t(dim)});
    bool some = llvm::any_of(marked, [&](int64_t) {
      return marked.size() > program.getPartialStatistics().size();
    });
    any |= some;
    if (some)
      program.setPartialStatistics(marked);
  });
  return any;
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
        LayoutAttr::get(context, other)));
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
      {"shard-nothing-sent", schedule, "an exchange of what was there before",
       sendNothing},
      {"shard-nothing-received", schedule, "what crossed is not taken",
       receiveNothing},
      {"shard-mean-undivided", schedule, "a sum for a mean", loseDivision},
      {"shard-sum-divided", schedule, "a mean for a sum", addDivision},
      {"shard-part-combined-otherwise", schedule,
       "the largest of a rank's elements for their sum", sendOtherwise},
      {"shard-received-otherwise", schedule,
       "a sum received as the integer of a maximum", receiveOtherwise},
      {"shard-received-early", schedule, "received before it crossed",
       receiveEarly},
      {"shard-received-anothers", schedule, "another exchange is received",
       receiveAnothers},
      {"shard-received-as-columns", schedule, "rows received as columns",
       receiveOtherLevel},
      {"shard-exchanged-otherwise", schedule, "the largest of parts for a sum",
       exchangeOtherwise},
      {"shard-round-early", schedule, "exchanged a round before",
       exchangeEarlier},
      {"shard-round-late", schedule, "exchanged a round behind", exchangeLater},
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
