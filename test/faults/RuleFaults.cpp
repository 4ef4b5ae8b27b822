//===- RuleFaults.cpp - faults in rules on whole tensors ------------------===//
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

static bool isTensor(Value value) {
  return isa<SymTensorType>(value.getType());
}

template <typename OpT>
static bool swapFirst(ModuleOp module) {
  return seedFirstOfEach<RuleOp, OpT>(module,
                                      [](OpT op) { return swapOperands(op); });
}

/// One operation in place of another, in each rule.
template <typename OldT, typename NewT>
static bool exchange(ModuleOp module) {
  return seedFirst<OldT>(module, [](OldT op) {
    OpBuilder builder(op);
    auto other = NewT::create(builder, op.getLoc(), op->getResultTypes(),
                              op->getOperands());
    return replaceBy(op, other->getResult(0));
  });
}

static bool dropTerm(ModuleOp module) {
  return seedFirstOfEach<RuleOp, AddOp>(module, [](AddOp op) {
    Value term = op->getOperand(0);
    return isTensor(term) && term.getType() == op.getType() &&
           replaceBy(op, term);
  });
}

static bool swapLerp(ModuleOp module) {
  return seedFirst<LerpOp>(module, [](LerpOp op) { return swapOperands(op); });
}

static bool invertSelect(ModuleOp module) {
  return seedFirst<SelectOp>(module, [](SelectOp op) {
    return op->getOperand(1).getType() == op->getOperand(2).getType() &&
           swapOperands(op, 1, 2);
  });
}

static bool dropAbs(ModuleOp module) {
  return seedFirst<AbsOp>(
      module, [](AbsOp op) { return replaceBy(op, op->getOperand(0)); });
}

static bool negateOption(ModuleOp module) {
  return seedFirst<OptionOp>(module, [](OptionOp op) {
    if (!op.isDerived())
      return false;
    bool differs = *op.getPredicate() == Predicate::NE;
    op.setPredicateAttr(PredicateAttr::get(
        op.getContext(), differs ? Predicate::EQ : Predicate::NE));
    return true;
  });
}

/// The rest of the rule uses what was not rounded yet.
static bool useUnrounded(ModuleOp module) {
  bool any = false;
  module.walk([&](StoredOp op) {
    op.getResult().replaceUsesWithIf(op.getOperand(), [&](OpOperand &use) {
      bool other = !isa<ReturnOp>(use.getOwner());
      any |= other;
      return other;
    });
  });
  return any;
}

static bool keepOldState(ModuleOp module) {
  return seedFirst<ReturnOp>(module, [](ReturnOp op) {
    auto rule = op->getParentOfType<RuleOp>();
    for (OpOperand &operand : op->getOpOperands())
      if (auto stored = operand.get().getDefiningOp<StoredOp>()) {
        unsigned argument = stored.getRoles().front();
        if (argument == 0)
          continue;
        operand.set(rule.getBody().getArgument(argument));
        return true;
      }
    return false;
  });
}

static bool eraseContribution(ModuleOp module) {
  bool any = false;
  module.walk([&](RuleOp rule) {
    any |= seedFirst<ContributeOp>(rule, [](ContributeOp op) {
      op.erase();
      return true;
    });
  });
  return any;
}

static bool changeKind(ModuleOp module) {
  return seedFirst<StatisticOp>(module, [](StatisticOp op) {
    op.setKind(op.getKind() == ReductionKind::Sum ? ReductionKind::Amax
                                                  : ReductionKind::Sum);
    return true;
  });
}

static bool widenScope(ModuleOp module) {
  return seedFirst<StatisticOp>(module, [](StatisticOp op) {
    if (op.getScope() == Scope::Model)
      return false;
    op.setScope(Scope::Model);
    return true;
  });
}

template <typename OpT>
static bool eraseFirst(ModuleOp module) {
  return seedFirst<OpT>(module, [](OpT op) {
    op->erase();
    return true;
  });
}

static bool dropAlways(ModuleOp module) {
  return seedFirst<UpdateOp>(module, [](UpdateOp op) {
    bool was = op.getAlways();
    op.setAlways(false);
    return was;
  });
}

static bool addAlways(ModuleOp module) {
  return seedFirst<UpdateOp>(module, [](UpdateOp op) {
    bool skips =
        !op->getParentOfType<ScalarsOp>().getBody().getOps<SkipIfOp>().empty();
    bool was = op.getAlways();
    op.setAlways(true);
    return skips && !was;
  });
}

static bool reportAnother(ModuleOp module) {
  Value statistic;
  module.walk([&](StatisticOp op) { statistic = op.getResult(); });
  return statistic && seedFirst<ReportOp>(module, [&](ReportOp op) {
           if (op.getValue() == statistic)
             return false;
           op.getValueMutable().assign(statistic);
           return true;
         });
}

/// What a scalars' region yields is the other of two results.
static bool swapResults(ModuleOp module) {
  return seedFirst<YieldOp>(module, [](YieldOp op) {
    return isa<ScalarsOp>(op->getParentOp()) && op->getNumOperands() > 1 &&
           op->getOperand(0).getType() == op->getOperand(1).getType() &&
           swapOperands(op);
  });
}

static bool loseRounding(ModuleOp module) {
  return seedFirst<RoundOp>(
      module, [](RoundOp op) { return replaceBy(op, op->getOperand(0)); });
}

static bool roundAgain(ModuleOp module) {
  return seedFirst<RoundOp>(module, [&](RoundOp op) {
    OpBuilder builder(op);
    op->setOperand(0, RoundOp::create(builder, op.getLoc(), op.getType(),
                                      op->getOperand(0), op.getStorage()));
    return true;
  });
}

/// A value on the way to the state is rounded as the state is.
static bool roundTooEarly(ModuleOp module) {
  return seedFirst<RoundOp>(module, [](RoundOp op) {
    Operation *source = op->getOperand(0).getDefiningOp();
    for (OpOperand &operand : source->getOpOperands())
      if (operand.get().getDefiningOp() &&
          operand.get().getType() == op.getType()) {
        OpBuilder builder(source);
        operand.set(RoundOp::create(builder, op.getLoc(), op.getType(),
                                    operand.get(), op.getStorage()));
        return true;
      }
    return false;
  });
}

std::vector<Fault> faults::getRuleFaults() {
  Stage define = Stage::Define, bind = Stage::Bind;
  return {
      {"define-term-dropped", define, "a sum without its second term",
       dropTerm},
      {"define-difference-swapped", define, "b - a", swapFirst<SubOp>},
      {"define-quotient-swapped", define, "b / a", swapFirst<DivOp>},
      {"define-sum-for-difference", define, "a + b in place of a - b",
       exchange<SubOp, AddOp>},
      {"define-minimum-for-maximum", define, "the smaller value",
       exchange<MaximumOp, MinimumOp>},
      {"define-maximum-for-minimum", define, "the larger value",
       exchange<MinimumOp, MaximumOp>},
      {"define-lerp-swapped", define, "from the end to the start", swapLerp},
      {"define-select-inverted", define, "the other value", invertSelect},
      {"define-magnitude-dropped", define, "a value with its sign", dropAbs},
      {"define-option-negated", define, "an option derived the other way round",
       negateOption},
      {"define-unrounded-used", define,
       "a new value is used as it was before it was rounded", useUnrounded},
      {"define-state-kept", define, "a state is not updated", keepOldState},
      {"define-contribution-lost", define, "a rule does not contribute",
       eraseContribution},
      {"define-statistic-kind", define, "the largest in place of the sum",
       changeKind},
      {"define-statistic-scope", define, "the model's in place of the group's",
       widenScope},
      {"define-update-lost", define, "a kept scalar is not updated",
       eraseFirst<UpdateOp>},
      {"define-always-lost", define,
       "a skipped step leaves what is always updated", dropAlways},
      {"define-always-added", define, "a skipped step updates all", addAlways},
      {"define-skip-lost", define, "no step is skipped", eraseFirst<SkipIfOp>},
      {"define-report-of-another", define, "a report of another value",
       reportAnother},
      {"define-results-swapped", define, "two results of a round exchanged",
       swapResults},
      {"bind-rounding-lost", bind, "a new value is not rounded", loseRounding},
      {"bind-rounding-too-early", bind, "a part of a new value is rounded",
       roundTooEarly},
      {"control-rounded-again", bind, "what is rounded is rounded once more",
       roundAgain},
  };
}
