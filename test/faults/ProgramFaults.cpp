//===- ProgramFaults.cpp - faults in programs -----------------------------===//
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
// Scalars of the cohort
//===----------------------------------------------------------------------===//

/// In each of them, `change` makes another value of an argument of the program.
template <typename ChangeT>
static bool changeArgument(ModuleOp module, RoleKind kind, ChangeT &&change) {
  bool any = false;
  module.walk([&](CohortScalarsOp scalars) {
    auto program = cast<ProgramOp>(scalars->getParentOp());
    for (BlockArgument argument : program.getBody().getArguments()) {
      if (program.getRole(argument.getArgNumber()).getKind() != kind)
        continue;
      OpBuilder builder = OpBuilder::atBlockBegin(&scalars.getBody().front());
      Operation *other = change(builder, argument);
      argument.replaceUsesWithIf(other->getResult(0), [&](OpOperand &use) {
        bool own = use.getOwner() != other &&
                   scalars->isProperAncestor(use.getOwner());
        any |= own;
        return own;
      });
    }
  });
  return any;
}

/// They see the count of the step before.
static bool countBehind(ModuleOp module) {
  return changeArgument(
      module, RoleKind::Count, [](OpBuilder &builder, Value count) {
        Location loc = count.getLoc();
        Value one = arith::ConstantIntOp::create(builder, loc, 1, 64);
        return arith::SubIOp::create(builder, loc, count, one);
      });
}

static bool invertFresh(ModuleOp module) {
  return changeArgument(
      module, RoleKind::Fresh, [](OpBuilder &builder, Value fresh) {
        Location loc = fresh.getLoc();
        Value yes = arith::ConstantIntOp::create(builder, loc, 1, 1);
        return arith::XOrIOp::create(builder, loc, fresh, yes);
      });
}

/// Rounds each yielded scalar that is computed.
static bool narrowScalars(ModuleOp module) {
  bool any = false;
  module.walk([&](CohortScalarsOp scalars) {
    Operation *yield = scalars.getBody().front().getTerminator();
    OpBuilder builder(yield);
    for (OpOperand &operand : yield->getOpOperands()) {
      if (!operand.get().getType().isF64())
        continue;
      Value narrow = arith::TruncFOp::create(
          builder, scalars.getLoc(), builder.getF32Type(), operand.get());
      operand.set(arith::ExtFOp::create(builder, scalars.getLoc(),
                                        builder.getF64Type(), narrow));
      any = true;
    }
  });
  return any;
}

/// A later segment uses a hyper-parameter for the result of a round.
static bool useAnotherResult(ModuleOp module) {
  auto optimizer = *module.getOps<OptimizerOp>().begin();
  auto hypers = optimizer.getBody().getOps<HyperOp>();
  return seedFirst<CohortScalarsOp>(module, [&](CohortScalarsOp scalars) {
    if (hypers.empty())
      return false;
    for (auto round : optimizer.getBody().getOps<ScalarsOp>()) {
      for (Value result : round.getResults())
        for (OpOperand &use : result.getUses())
          if (result.getType().isF64() &&
              scalars->isProperAncestor(use.getOwner())) {
            use.set((*hypers.begin()).getResult());
            return true;
          }
    }
    return false;
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
    auto traverse = dyn_cast<TraverseOp>(op->getParentOp());
    return traverse && traverse.isKernel() && seed(op);
  });
}

template <typename OpT>
static bool swapInScalars(ModuleOp module) {
  return seedFirstOfEach<ProgramOp, OpT>(module, [](OpT op) {
    return isa<ProgramOp, CohortScalarsOp>(op->getParentOp()) &&
           swapOperands(op);
  });
}

static bool dropTermOfKernels(ModuleOp module) {
  return seedKernels<arith::AddFOp>(
      module, [](arith::AddFOp op) { return replaceBy(op, op.getLhs()); });
}

/// (a * b) * c becomes a * (b * c), in each kernel.
static bool reassociate(ModuleOp module) {
  return seedFirstOfEach<TraverseOp, arith::MulFOp>(
      module, [](arith::MulFOp op) {
        for (bool right : {false, true}) {
          Value side = right ? op.getRhs() : op.getLhs();
          Value other = right ? op.getLhs() : op.getRhs();
          auto inner = side.getDefiningOp<arith::MulFOp>();
          if (!inner || other == side)
            continue;
          OpBuilder builder(op);
          Value product = arith::MulFOp::create(builder, op.getLoc(),
                                                inner.getRhs(), other);
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

/// Kernels use another scalar of the cohort.
static bool useAnotherScalar(ModuleOp module) {
  return seedFirstOfEach<ProgramOp, TraverseOp>(
      module, [](TraverseOp traverse) {
        if (!traverse.isKernel())
          return false;
        for (OpOperand &use : traverse.getScalarsMutable()) {
          auto scalars = use.get().getDefiningOp<CohortScalarsOp>();
          if (!scalars)
            continue;
          unsigned next = cast<OpResult>(use.get()).getResultNumber() + 1;
          if (next == scalars->getNumResults() ||
              scalars->getResult(next).getType() != use.get().getType())
            continue;
          use.set(scalars->getResult(next));
          return true;
        }
        return false;
      });
}

/// What is added up is rounded to bf16.
static bool accumulateRounded(ModuleOp module) {
  return seedFirstOfEach<ProgramOp, TraverseOp>(
      module, [](TraverseOp traverse) {
        Operation *yield = traverse.getBody().front().getTerminator();
        if (traverse.getPartials().empty() || !traverse.isKernel())
          return false;
        OpOperand &last = yield->getOpOperand(yield->getNumOperands() - 1);
        if (!last.get().getType().isF32())
          return false;
        OpBuilder builder(yield);
        Value narrow = arith::TruncFOp::create(
            builder, traverse.getLoc(), builder.getBF16Type(), last.get());
        last.set(arith::ExtFOp::create(builder, traverse.getLoc(),
                                       builder.getF32Type(), narrow));
        return true;
      });
}

namespace {
/// One operand that a traversal writes: its element in the body, where it is
/// also read, and what is yielded for it.
struct Written {
  RoleKind kind;
  Value read;
  OpOperand *yielded;
};
} // namespace

static SmallVector<Written> getWritten(TraverseOp traverse) {
  SmallVector<Written> written;
  auto program = cast<ProgramOp>(traverse->getParentOp());
  Block &block = traverse.getBody().front();
  for (auto [k, buffer] : llvm::enumerate(traverse.getWrites())) {
    auto memory = cast<BlockArgument>(getMemory(buffer));
    Value read;
    for (auto [element, other] :
         llvm::zip(block.getArguments(), traverse.getReads()))
      if (getMemory(other) == memory)
        read = element;
    written.push_back({program.getRole(memory.getArgNumber()).getKind(), read,
                       &block.getTerminator()->getOpOperand(k)});
  }
  return written;
}

static bool keepState(ModuleOp module) {
  return seedFirst<TraverseOp>(module, [](TraverseOp traverse) {
    for (Written &state : getWritten(traverse))
      if (state.kind == RoleKind::State && state.read) {
        state.yielded->set(state.read);
        return true;
      }
    return false;
  });
}

/// What uses a state's old value uses the new one.
static bool readAfterWrite(ModuleOp module) {
  return seedFirst<TraverseOp>(module, [](TraverseOp traverse) {
    for (Written &state : getWritten(traverse)) {
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
        return sortTopologically(&traverse.getBody().front());
    }
    return false;
  });
}

static bool swapStores(ModuleOp module) {
  return seedFirst<TraverseOp>(module, [](TraverseOp traverse) {
    SmallVector<Written> written = getWritten(traverse);
    if (written.size() < 2 || written[0].yielded->get().getType() !=
                                  written[1].yielded->get().getType())
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
       dropTermOfKernels},
      {"program-reassociated", schedule, "a * (b * c)", reassociate},
      {"program-reciprocal", schedule, "a * (1 / b)", useReciprocal},
      {"program-another-slot", schedule, "the next scalar of the row",
       useAnotherScalar},
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
