//===- SumFaults.cpp - faults in reproducible sums ------------------------===//
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

/// Seeds the first sum of terms of each rule.
template <typename SeedT>
static bool seedSums(ModuleOp module, SeedT &&seed) {
  return seedFirstOfEach<RuleOp, ReductionOpInterface>(
      module, [&](ReductionOpInterface op) {
        return op.getInputs().size() > 1 && seed(op);
      });
}

/// The mean error of a term is then above what f64 can do.
static bool loseTerm(ModuleOp module) {
  return seedSums(module, [](ReductionOpInterface op) {
    unsigned second = op.getInputs().size() - 2;
    op->setOperand(second, op->getOperand(0));
    return true;
  });
}

/// By a multiple so small that f64 cannot hold the sum of such terms.
static bool roundFiner(ModuleOp module) {
  return seedSums(module, [](ReductionOpInterface op) {
    auto term = op.getInputs().back().getDefiningOp<SubOp>();
    auto sum = term ? term.getLhs().getDefiningOp<AddOp>() : AddOp();
    auto rounder = term ? term.getRhs().getDefiningOp<ConstantOp>() : nullptr;
    if (!sum || !rounder)
      return false;
    double value = cast<FloatAttr>(rounder.getValue()).getValueAsDouble();
    OpBuilder builder(sum);
    Value finer = ConstantOp::create(builder, op.getLoc(),
                                     builder.getF64FloatAttr(value * 0x1p-45));
    sum.getRhsMutable().assign(finer);
    term.getRhsMutable().assign(finer);
    return true;
  });
}

static bool keepScaled(ModuleOp module) {
  return seedSums(module, [](ReductionOpInterface op) {
    auto scaled = dyn_cast<MulOp>(*op->getResult(0).user_begin());
    return scaled && replaceBy(scaled, op->getResult(0));
  });
}

/// As if all terms were finite.
static bool takeNaN(ModuleOp module) {
  return seedSums(module, [](ReductionOpInterface op) {
    Value value = op->getResult(0);
    while (value.hasOneUse() && isa<MulOp>(*value.user_begin()))
      value = value.user_begin()->getResult(0);
    auto select = dyn_cast<SelectOp>(*value.user_begin());
    return select && replaceBy(select, value);
  });
}

/// Each rank scales its part by the largest of its own elements.
static bool scaleByPart(ModuleOp module) {
  return seedFirstOfEach<RuleOp, AmaxOp>(module, [](AmaxOp op) {
    bool crossed = bool(op.getAcrossAttr());
    op.removeAcrossAttr();
    return crossed;
  });
}

/// A statistic has what a tensor contributes in place of its largest term.
static bool contributeWhole(ModuleOp module) {
  return seedFirstOfEach<RuleOp, ContributeOp>(module, [](ContributeOp op) {
    auto term = op.getValue().getDefiningOp<SubOp>();
    auto sum = term ? term.getLhs().getDefiningOp<AddOp>() : AddOp();
    if (!sum || !op.getStatisticOp().getName().ends_with(".fold1"))
      return false;
    op.getValueMutable().assign(sum.getLhs());
    return true;
  });
}

/// The order of the sums of terms is the same on all ranks, whichever it is.
static bool addLargestFirst(ModuleOp module) {
  return seedSums(module, [](ReductionOpInterface op) {
    SmallVector<Value> inputs(llvm::reverse(op.getInputs()));
    for (auto [index, input] : llvm::enumerate(inputs))
      op->setOperand(index, input);
    return true;
  });
}

std::vector<Fault> faults::getSumFaults() {
  Stage shard = Stage::Shard;
  return {
      {"shard-sum-term-lost", shard, "the second of the terms is another",
       loseTerm},
      {"shard-sum-rounded-finer", shard, "terms whose sum f64 does not hold",
       roundFiner},
      {"shard-sum-not-scaled-back", shard, "a sum of terms for that of values",
       keepScaled},
      {"shard-sum-nan-for-inf", shard, "terms of what is not finite", takeNaN},
      {"shard-sum-scaled-by-part", shard, "a rank's own largest element",
       scaleByPart},
      {"shard-sum-statistic-unrounded", shard,
       "what is contributed, not its term", contributeWhole},
      {"control-shard-sum-largest-first", shard,
       "terms are added in another order", addLargestFirst},
  };
}
