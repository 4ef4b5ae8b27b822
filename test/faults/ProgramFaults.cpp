//===- ProgramFaults.cpp - faults in programs of phases -------------------===//
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

//===----------------------------------------------------------------------===//
// Scalar phases
//===----------------------------------------------------------------------===//

/// The scalar phases see the count of the step before.
static bool countBehind(ModuleOp module) {
  bool any = false;
  module.walk([&](ScalarPhaseOp phase) {
    Block &block = phase.getBody().front();
    Value count = block.getArgument(block.getNumArguments() - 2);
    if (count.use_empty())
      return;
    OpBuilder builder = OpBuilder::atBlockBegin(&block);
    Value one = arith::ConstantIntOp::create(builder, phase.getLoc(), 1, 64);
    auto behind = arith::SubIOp::create(builder, phase.getLoc(), count, one);
    count.replaceAllUsesExcept(behind, behind);
    any = true;
  });
  return any;
}

static bool invertFresh(ModuleOp module) {
  bool any = false;
  module.walk([&](ScalarPhaseOp phase) {
    Block &block = phase.getBody().front();
    Value fresh = block.getArgument(block.getNumArguments() - 1);
    if (fresh.use_empty())
      return;
    OpBuilder builder = OpBuilder::atBlockBegin(&block);
    Value yes = arith::ConstantIntOp::create(builder, phase.getLoc(), 1, 1);
    auto other = arith::XOrIOp::create(builder, phase.getLoc(), fresh, yes);
    fresh.replaceAllUsesExcept(other, other);
    any = true;
  });
  return any;
}

/// Rounds each yielded scalar that is computed.
static bool narrowScalars(ModuleOp module) {
  bool any = false;
  module.walk([&](ScalarPhaseOp phase) {
    Operation *yield = phase.getBody().front().getTerminator();
    OpBuilder builder(yield);
    for (OpOperand &operand : yield->getOpOperands()) {
      Value narrow = arith::TruncFOp::create(
          builder, phase.getLoc(), builder.getF32Type(), operand.get());
      operand.set(arith::ExtFOp::create(builder, phase.getLoc(),
                                        builder.getF64Type(), narrow));
      any = true;
    }
  });
  return any;
}

/// A later segment uses another input than the result of a round.
static bool useAnotherResult(ModuleOp module) {
  auto optimizer = *module.getOps<OptimizerOp>().begin();
  int64_t hypers = llvm::range_size(optimizer.getBody().getOps<HyperOp>());
  return seedFirst<ScalarPhaseOp>(module, [&](ScalarPhaseOp phase) {
    Block &block = phase.getBody().front();
    if (phase.getSegment() == 0 || hypers == 0)
      return false;
    BlockArgument result = block.getArgument(hypers);
    if (result.use_empty())
      return false;
    result.replaceAllUsesWith(block.getArgument(0));
    return true;
  });
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

/// Calls `seed` with the operations of a type in each program's kernels, until
/// one returns true.
template <typename OpT, typename SeedT>
static bool seedKernels(ModuleOp module, SeedT &&seed) {
  return seedFirstOfEach<ProgramOp, OpT>(module, [&](OpT op) {
    auto phase = dyn_cast<PhaseOp>(op->getParentOp());
    return phase && isKernel(phase) && seed(op);
  });
}

template <typename OpT>
static bool swapInScalars(ModuleOp module) {
  return seedFirstOfEach<ProgramOp, OpT>(module, [](OpT op) {
    return isa<TensorScalarsOp, ScalarPhaseOp>(op->getParentOp()) &&
           swapOperands(op);
  });
}

static bool dropTerm(ModuleOp module) {
  return seedKernels<arith::AddFOp>(
      module, [](arith::AddFOp op) { return replaceBy(op, op.getLhs()); });
}

/// (a * b) * c becomes a * (b * c), in each kernel.
static bool reassociate(ModuleOp module) {
  return seedFirstOfEach<PhaseOp, arith::MulFOp>(module, [](arith::MulFOp op) {
    for (bool right : {false, true}) {
      Value side = right ? op.getRhs() : op.getLhs();
      Value other = right ? op.getLhs() : op.getRhs();
      auto inner = side.getDefiningOp<arith::MulFOp>();
      if (!inner || other == side)
        continue;
      OpBuilder builder(op);
      Value product =
          arith::MulFOp::create(builder, op.getLoc(), inner.getRhs(), other);
      op->setOperand(0, inner.getLhs());
      op->setOperand(1, product);
      return true;
    }
    return false;
  });
}

static bool useReciprocal(ModuleOp module) {
  return seedKernels<arith::DivFOp>(module, [](arith::DivFOp op) {
    OpBuilder builder(op);
    Value one = arith::ConstantOp::create(
        builder, op.getLoc(), builder.getFloatAttr(op.getType(), 1.0));
    Value inverse =
        arith::DivFOp::create(builder, op.getLoc(), one, op.getRhs());
    return replaceBy(
        op, arith::MulFOp::create(builder, op.getLoc(), op.getLhs(), inverse));
  });
}

/// Kernels use another slot of the scalar row.
static bool useAnotherSlot(ModuleOp module) {
  return seedFirstOfEach<ProgramOp, PhaseOp>(module, [](PhaseOp phase) {
    Block &block = phase.getBody().front();
    for (int64_t k = 0; isKernel(phase) && k + 1 < int64_t(phase.getNumSlots());
         ++k)
      if (!block.getArgument(k).use_empty()) {
        block.getArgument(k).replaceAllUsesWith(block.getArgument(k + 1));
        return true;
      }
    return false;
  });
}

/// What is added up is rounded to bf16.
static bool accumulateRounded(ModuleOp module) {
  return seedFirstOfEach<ProgramOp, PhaseOp>(module, [](PhaseOp phase) {
    Operation *yield = phase.getBody().front().getTerminator();
    if (phase.getAccumulators().empty() || !isKernel(phase))
      return false;
    OpOperand &last = yield->getOpOperand(yield->getNumOperands() - 1);
    if (!last.get().getType().isF32())
      return false;
    OpBuilder builder(yield);
    Value narrow = arith::TruncFOp::create(builder, phase.getLoc(),
                                           builder.getBF16Type(), last.get());
    last.set(arith::ExtFOp::create(builder, phase.getLoc(),
                                   builder.getF32Type(), narrow));
    return true;
  });
}

namespace {
/// One operand that a phase writes: its element in the body, where it is also
/// read, and what is yielded for it.
struct Written {
  OperandAttr attr;
  Value read;
  OpOperand *yielded;
};
} // namespace

static SmallVector<Written> getWritten(PhaseOp phase) {
  SmallVector<Written> written;
  Block &block = phase.getBody().front();
  unsigned argument = phase.getNumSlots() + phase.getTensorSlots(), result = 0;
  for (auto operand : phase.getOperands().getAsRange<OperandAttr>()) {
    Value read;
    if (operand.getReads())
      read = block.getArgument(argument++);
    if (operand.getWrites())
      written.push_back(
          {operand, read, &block.getTerminator()->getOpOperand(result++)});
  }
  return written;
}

static bool keepState(ModuleOp module) {
  return seedFirst<PhaseOp>(module, [](PhaseOp phase) {
    for (Written &state : getWritten(phase))
      if (state.attr.getKind() == RoleKind::State && state.read) {
        state.yielded->set(state.read);
        return true;
      }
    return false;
  });
}

/// What uses a state's old value uses the new one.
static bool readAfterWrite(ModuleOp module) {
  return seedFirst<PhaseOp>(module, [](PhaseOp phase) {
    for (Written &state : getWritten(phase)) {
      Value stored = state.yielded->get();
      if (!state.read || !stored.getDefiningOp() ||
          stored.getType() != state.read.getType())
        continue;
      llvm::SetVector<Operation *> needed;
      BackwardSliceOptions options;
      options.inclusive = true;
      (void)getBackwardSlice(stored, &needed, options);
      bool any = false;
      state.read.replaceUsesWithIf(stored, [&](OpOperand &use) {
        bool other = !needed.contains(use.getOwner());
        any |= other;
        return other;
      });
      if (any)
        return sortTopologically(&phase.getBody().front());
    }
    return false;
  });
}

static bool swapStores(ModuleOp module) {
  return seedFirst<PhaseOp>(module, [](PhaseOp phase) {
    SmallVector<Written> written = getWritten(phase);
    if (written.size() < 2 ||
        written[0].attr.getStorage() != written[1].attr.getStorage())
      return false;
    Value first = written[0].yielded->get();
    written[0].yielded->set(written[1].yielded->get());
    written[1].yielded->set(first);
    return true;
  });
}

/// x becomes -(-x).
static bool negateTwice(ModuleOp module) {
  return seedKernels<arith::MulFOp>(module, [](arith::MulFOp op) {
    OpBuilder builder(op);
    Value negative = arith::NegFOp::create(builder, op.getLoc(), op.getLhs());
    op->setOperand(0, arith::NegFOp::create(builder, op.getLoc(), negative));
    return true;
  });
}

std::vector<Fault> faults::getProgramFaults() {
  Stage schedule = Stage::Schedule;
  return {
      {"program-count-behind", schedule, "scalars of the step before",
       countBehind},
      {"program-fresh-inverted", schedule, "every step but the first is fresh",
       invertFresh},
      {"program-scalars-in-f32", schedule, "scalars of the row in f32",
       narrowScalars},
      {"program-another-result", schedule,
       "a hyper-parameter for the result of a round", useAnotherResult},
      {"program-scalar-difference-swapped", schedule, "b - a of scalars",
       swapInScalars<arith::SubFOp>},
      {"program-scalar-quotient-swapped", schedule, "b / a of scalars",
       swapInScalars<arith::DivFOp>},
      {"program-term-dropped", schedule, "a sum without its second term",
       dropTerm},
      {"program-reassociated", schedule, "a * (b * c)", reassociate},
      {"program-reciprocal", schedule, "a * (1 / b)", useReciprocal},
      {"program-another-slot", schedule, "the next scalar of the row",
       useAnotherSlot},
      {"program-accumulates-rounded", schedule, "what is added up, in bf16",
       accumulateRounded},
      {"program-state-kept", schedule, "a state is not updated", keepState},
      {"program-state-read-after-write", schedule,
       "the new value of a state for its old one", readAfterWrite},
      {"program-stores-swapped", schedule, "two new values exchanged",
       swapStores},
      {"control-negated-twice", schedule, "-(-x)", negateTwice},
  };
}
