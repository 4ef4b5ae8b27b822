//===- FinishFaults.cpp - faults in what runs between kernels -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What uses something before it is there, or partial results that are not
// combined, or combined otherwise than they were added up, is no program: the
// verifier refuses it (test/dialect/program-invalid.mlir).
//
//===----------------------------------------------------------------------===//
#include "Seed.h"
#include "SeedFault.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::faults;

template <typename SeedT>
static bool seedCombines(ModuleOp module, SeedT &&seed) {
  return seedFirstOfEach<ProgramOp, CombineOp>(module, [&](CombineOp op) {
    return !isa<ShareType>(op.getResult().getType()) && seed(op);
  });
}

/// The largest in place of a sum.
static bool reduceOtherwise(ModuleOp module) {
  return seedCombines(module, [](CombineOp op) {
    PartialType own = op.getPartial().getType();
    op.getPartial().setType(PartialType::get(op.getContext(),
                                             getOther(own.getCombiner()),
                                             own.getDims(), own.getKept()));
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

/// Of each program two combines, one behind the other, that `swap` exchanges.
template <typename SwapT>
static bool swapCombines(ModuleOp module, SwapT &&swap) {
  return seedFirst<ProgramOp>(module, [&](ProgramOp program) {
    SmallVector<CombineOp> combines = getAll<CombineOp>(program);
    for (size_t k = 0; k + 1 < combines.size(); ++k)
      if (combines[k].getPartial().getType() ==
              combines[k + 1].getPartial().getType() &&
          swap(combines[k], combines[k + 1]))
        return true;
    return false;
  });
}

/// Two reductions of a traversal read each other's partial sums.
static bool swapPartials(ModuleOp module) {
  return swapCombines(module, [](CombineOp a, CombineOp b) {
    if (a.getPartial().getDefiningOp() != b.getPartial().getDefiningOp())
      return false;
    Value first = a.getPartial();
    a.getPartialMutable().set(b.getPartial());
    b.getPartialMutable().set(first);
    return true;
  });
}

/// Where a number is used, the next one is.
static bool useAnotherNumber(ModuleOp module) {
  return swapCombines(module, [](CombineOp a, CombineOp b) {
    if (a->getNextNode() != b || !a.getResult().getType().isF64() ||
        !b.getResult().getType().isF64())
      return false;
    a.getResult().replaceAllUsesWith(b.getResult());
    return true;
  });
}

/// A kernel takes a row's value for a column's.
static bool swapProjections(ModuleOp module) {
  return seedFirst<TraverseOp>(module, [](TraverseOp traverse) {
    SmallVector<unsigned> vectors;
    for (auto [k, buffer] : llvm::enumerate(traverse.getReads()))
      if (!isa<BlockArgument>(getMemory(buffer)))
        vectors.push_back(k);
    return traverse.isKernel() && vectors.size() >= 2 &&
           swapOperands(traverse, vectors[0], vectors[1]);
  });
}

/// The statistic gets another number that is there by then.
static bool contributeAnother(ModuleOp module) {
  return seedFirst<ContributeOp>(module, [](ContributeOp contribute) {
    auto program = dyn_cast<ProgramOp>(contribute->getParentOp());
    if (!program)
      return false;
    for (Operation &op : program.getBody().front()) {
      if (&op == contribute.getOperation())
        return false;
      for (Value result : op.getResults())
        if (isa<CombineOp, CohortScalarsOp>(op) && result.getType().isF64() &&
            result != contribute.getValue()) {
          contribute.getValueMutable().set(result);
          return true;
        }
    }
    return false;
  });
}

static bool contributeNothing(ModuleOp module) {
  return seedFirst<ContributeOp>(module, [](ContributeOp contribute) {
    contribute.erase();
    return true;
  });
}

std::vector<Fault> faults::getFinishFaults() {
  Stage schedule = Stage::Schedule;
  return {
      {"program-reduced-otherwise", schedule, "the largest for a sum",
       reduceOtherwise},
      {"program-mean-undivided", schedule, "a mean that is a sum",
       loseDivision},
      {"program-sum-divided", schedule, "a sum that is a mean", addDivision},
      {"program-another-number", schedule, "the next number of the tensor",
       useAnotherNumber},
      {"program-partials-swapped", schedule, "another reduction's sums",
       swapPartials},
      {"program-projections-swapped", schedule, "rows for columns",
       swapProjections},
      {"program-contribution-of-another", schedule,
       "the next scalar is contributed", contributeAnother},
      {"program-contribution-lost", schedule, "nothing is contributed",
       contributeNothing},
  };
}
