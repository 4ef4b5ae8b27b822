//===- FinishFaults.cpp - faults in what runs between kernels -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "Seed.h"
#include "SeedFault.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::faults;

template <typename SeedT>
static bool seedCombines(ModuleOp module, SeedT &&seed) {
  return seedFirstOfEach<ProgramOp, CombineOp>(module, seed);
}

static bool loseCombine(ModuleOp module) {
  return seedCombines(module, [](CombineOp op) {
    op.erase();
    return true;
  });
}

static Combiner getOther(Combiner combiner) {
  return combiner == Combiner::Sum ? Combiner::Amax : Combiner::Sum;
}

static bool combineOtherwise(ModuleOp module) {
  return seedCombines(module, [](CombineOp op) {
    op.setCombiner(getOther(op.getCombiner()));
    return true;
  });
}

static bool accumulateOtherwise(ModuleOp module) {
  return seedFirst<PhaseOp>(module, [](PhaseOp phase) {
    SmallVector<Attribute> accumulators(phase.getAccumulators().begin(),
                                        phase.getAccumulators().end());
    if (accumulators.empty() || phase.getSpace() != Space::Tiles)
      return false;
    auto first = cast<AccumulatorAttr>(accumulators[0]);
    accumulators[0] =
        AccumulatorAttr::get(phase.getContext(), getOther(first.getCombiner()),
                             first.getDirection(), first.getPartial());
    phase.setAccumulatorsAttr(ArrayAttr::get(phase.getContext(), accumulators));
    return true;
  });
}

static bool setMean(ModuleOp module, bool mean) {
  return seedCombines(module, [&](CombineOp op) {
    bool was = op.getMean();
    op.setMean(mean);
    return was != mean;
  });
}
static bool loseDivision(ModuleOp module) { return setMean(module, false); }
static bool addDivision(ModuleOp module) { return setMean(module, true); }

static bool writeAnotherSlot(ModuleOp module) {
  return seedCombines(module, [](CombineOp op) {
    auto program = op->getParentOfType<ProgramOp>();
    int64_t slots = program.getTensorSlots();
    if (!op.getSlot() || slots < 2)
      return false;
    op.setSlot((*op.getSlot() + 1) % slots);
    return true;
  });
}

/// Two reductions of a traversal read each other's partial sums.
static bool swapPartials(ModuleOp module) {
  return seedFirst<ProgramOp>(module, [](ProgramOp program) {
    SmallVector<CombineOp> combines(program.getBody().getOps<CombineOp>());
    for (size_t k = 0; k + 1 < combines.size(); ++k) {
      CombineOp a = combines[k], b = combines[k + 1];
      bool columns =
          a.getLevel() == Level::Columns || b.getLevel() == Level::Columns;
      if (a.getSpace() != b.getSpace() || columns)
        continue;
      StringAttr first = a.getPartialAttr();
      a.setPartialAttr(b.getPartialAttr());
      b.setPartialAttr(first);
      return true;
    }
    return false;
  });
}

/// A kernel takes a row's value for a column's.
static bool swapProjections(ModuleOp module) {
  return seedFirst<PhaseOp>(module, [](PhaseOp phase) {
    SmallVector<Attribute> operands(phase.getOperands().begin(),
                                    phase.getOperands().end());
    SmallVector<size_t> temps;
    for (auto [index, operand] : llvm::enumerate(operands))
      if (cast<OperandAttr>(operand).getKind() == RoleKind::Temp)
        temps.push_back(index);
    if (phase.getSpace() != Space::Tiles || temps.size() < 2)
      return false;
    auto rename = [&](size_t index, size_t other) {
      auto own = cast<OperandAttr>(phase.getOperands()[index]);
      auto name = cast<OperandAttr>(phase.getOperands()[other]).getName();
      operands[index] = OperandAttr::get(
          phase.getContext(), own.getKind(), name, own.getShape(),
          own.getStorage(), own.getInit(), own.getReads(), own.getWrites());
    };
    rename(temps[0], temps[1]);
    rename(temps[1], temps[0]);
    phase.setOperandsAttr(ArrayAttr::get(phase.getContext(), operands));
    return true;
  });
}

/// A reduction is combined at the end of its finish.
static bool combineLate(ModuleOp module) {
  return seedCombines(module, [](CombineOp op) {
    Operation *last = op;
    while (Operation *next = last->getNextNode()) {
      auto phase = dyn_cast<PhaseOp>(next);
      if ((phase && isKernel(phase)) || isa<ScalarPhaseOp>(next))
        break;
      last = next;
    }
    bool between = false;
    for (Operation *next = op; next != last; next = next->getNextNode())
      between |= isa<PhaseOp, TensorScalarsOp>(next->getNextNode());
    op->moveAfter(last);
    return between;
  });
}

/// A kernel runs before the finish that it waits for.
static bool runEarly(ModuleOp module) {
  return seedFirst<ProgramOp>(module, [](ProgramOp program) {
    PhaseOp before;
    for (auto phase : program.getBody().getOps<PhaseOp>()) {
      if (!isKernel(phase))
        continue;
      if (before && before.getSegment() == phase.getSegment()) {
        phase->moveAfter(before);
        return true;
      }
      before = phase;
    }
    return false;
  });
}

static bool contributeAnother(ModuleOp module) {
  return seedFirst<ProgramOp>(module, [](ProgramOp program) {
    SmallVector<int64_t> triples(program.getContributions());
    if (triples.empty() || program.getTensorSlots() < 2)
      return false;
    triples[1] = (triples[1] + 1) % program.getTensorSlots();
    program.setContributions(triples);
    return true;
  });
}

static bool contributeNothing(ModuleOp module) {
  return seedFirst<ProgramOp>(module, [](ProgramOp program) {
    SmallVector<int64_t> triples(program.getContributions());
    if (triples.empty())
      return false;
    program.setContributions(ArrayRef(triples).drop_front(3));
    return true;
  });
}

/// A kernel of a later segment runs in the one before.
static bool runInEarlierSegment(ModuleOp module) {
  return seedFirst<ProgramOp>(module, [](ProgramOp program) {
    bool any = false;
    for (Operation &op : program.getBody().front()) {
      auto phase = dyn_cast<PhaseOp>(op);
      if (!phase || phase.getSegment() == 0)
        continue;
      phase.setSegment(phase.getSegment() - 1);
      any = true;
    }
    // Behind what is moved: segments are in order.
    Operation *last = &program.getBody().front().back();
    for (auto scalars :
         llvm::make_early_inc_range(program.getBody().getOps<ScalarPhaseOp>()))
      if (any && scalars.getSegment() > 0)
        scalars->moveAfter(last);
    return any;
  });
}

std::vector<Fault> faults::getFinishFaults() {
  Stage schedule = Stage::Schedule;
  return {
      {"program-combine-lost", schedule, "partial sums are not combined",
       loseCombine},
      {"program-combiner", schedule, "the largest of partial sums",
       combineOtherwise},
      {"program-accumulator", schedule, "the sum of the largest",
       accumulateOtherwise},
      {"program-mean-undivided", schedule, "a mean that is a sum",
       loseDivision},
      {"program-sum-divided", schedule, "a sum that is a mean", addDivision},
      {"program-combined-elsewhere", schedule, "into the next scalar",
       writeAnotherSlot},
      {"program-partials-swapped", schedule, "another reduction's sums",
       swapPartials},
      {"program-projections-swapped", schedule, "rows for columns",
       swapProjections},
      {"program-combined-late", schedule,
       "a finish uses what it has not combined", combineLate},
      {"program-kernel-early", schedule,
       "a kernel before the finish it depends on", runEarly},
      {"program-segment-early", schedule,
       "a kernel before the round it depends on", runInEarlierSegment},
      {"program-contribution-of-another", schedule,
       "the next scalar is contributed", contributeAnother},
      {"program-contribution-lost", schedule, "nothing is contributed",
       contributeNothing},
  };
}
