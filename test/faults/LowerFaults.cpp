//===- LowerFaults.cpp - faults in kernels --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "Seed.h"
#include "SeedFault.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::faults;

static bool isIndex(Value value, int64_t expected) {
  llvm::APInt constant;
  return matchPattern(value, m_ConstantInt(&constant)) &&
         constant.getSExtValue() == expected;
}

/// Ends the loop one step earlier.
static void shorten(scf::ForOp loop) {
  OpBuilder builder(loop);
  loop.setUpperBound(arith::SubIOp::create(
      builder, loop.getLoc(), loop.getUpperBound(), loop.getStep()));
}

/// Shortens the first loop of each kernel that `choose` picks.
template <typename ChooseT>
static bool shortenLoops(ModuleOp module, ChooseT &&choose) {
  return seedFirstOfEach<func::FuncOp, scf::ForOp>(
      module, [&](scf::ForOp loop) {
        if (!loop->getParentOfType<func::FuncOp>().getName().ends_with(
                "_run") ||
            !choose(loop))
          return false;
        shorten(loop);
        return true;
      });
}

/// The loop over what is left of a vector begins where vectors end.
static bool shortenTail(ModuleOp module) {
  return shortenLoops(module, [](scf::ForOp loop) {
    return isIndex(loop.getStep(), 1) && loop.getLowerBound().getDefiningOp() &&
           !isIndex(loop.getLowerBound(), 0);
  });
}

static bool shortenVectors(ModuleOp module) {
  return shortenLoops(module, [](scf::ForOp loop) {
    return isIndex(loop.getStep(), 16) || isIndex(loop.getStep(), 8);
  });
}

static bool shortenRows(ModuleOp module) {
  return shortenLoops(module, [](scf::ForOp loop) {
    return isIndex(loop.getStep(), 1) && isIndex(loop.getLowerBound(), 0) &&
           isa<BlockArgument>(loop.getUpperBound());
  });
}

/// What lanes add up is rounded to f32 each time.
static bool accumulateInF32(ModuleOp module) {
  bool any = false;
  module.walk([&](arith::AddFOp op) {
    auto type = dyn_cast<VectorType>(op.getType());
    if (!type || !type.getElementType().isF64())
      return;
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    Value narrow = arith::TruncFOp::create(
        builder, op.getLoc(), type.clone(builder.getF32Type()), op.getResult());
    Value wide = arith::ExtFOp::create(builder, op.getLoc(), type, narrow);
    op.getResult().replaceAllUsesExcept(wide, narrow.getDefiningOp());
    any = true;
  });
  return any;
}

/// Lanes are folded in another order.
static bool foldOtherwise(ModuleOp module) {
  bool any = false;
  module.walk([&](vector::ShuffleOp op) {
    SmallVector<int64_t> mask(op.getMask());
    if (mask.size() < 2 || mask.front() == 0 || op.getV1() != op.getV2())
      return;
    std::reverse(mask.begin(), mask.end());
    op.setMask(mask);
    any = true;
  });
  return any;
}

/// Sums begin with one.
static bool beginWithOne(ModuleOp module) {
  return seedFirstOfEach<func::FuncOp, arith::ConstantOp>(
      module, [](arith::ConstantOp op) {
        auto type = dyn_cast<VectorType>(op.getType());
        auto value = dyn_cast<SplatElementsAttr>(op.getValue());
        if (!type || !value || !type.getElementType().isF64() ||
            !value.getSplatValue<APFloat>().isZero())
          return false;
        op.setValueAttr(SplatElementsAttr::get(type, APFloat(1.0)));
        return true;
      });
}

/// Leaves of a row have twice as many elements.
static bool doubleLeaves(ModuleOp module) {
  bool any = false;
  module.walk([&](scf::ForOp loop) {
    if (!isIndex(loop.getStep(), 1024))
      return;
    OpBuilder builder(loop);
    loop.setStep(arith::ConstantIndexOp::create(builder, loop.getLoc(), 2048));
    any = true;
    loop.getBody()->walk([&](arith::AddIOp add) {
      if (!isIndex(add.getRhs(), 1024))
        return;
      builder.setInsertionPoint(add);
      add->setOperand(
          1, arith::ConstantIndexOp::create(builder, loop.getLoc(), 2048));
    });
  });
  return any;
}

/// A sum is rounded to f32 before it is divided, and the mean again.
static bool roundTwice(ModuleOp module) {
  return seedFirstOfEach<func::FuncOp, arith::DivFOp>(
      module, [](arith::DivFOp op) {
        StringRef name = op->getParentOfType<func::FuncOp>().getName();
        if (!name.contains("_finish") || !op.getType().isF64())
          return false;
        OpBuilder builder(op);
        Value narrow = arith::TruncFOp::create(
            builder, op.getLoc(), builder.getF32Type(), op.getLhs());
        op->setOperand(0, arith::ExtFOp::create(builder, op.getLoc(),
                                                op.getType(), narrow));
        return true;
      });
}

/// The calls of what a block of rows needs between the phases of a train.
static SmallVector<func::CallOp> findRowBlockCalls(ModuleOp module) {
  SmallVector<func::CallOp> calls;
  module.walk([&](func::CallOp call) {
    if (call.getCallee().ends_with("_rows"))
      calls.push_back(call);
  });
  return calls;
}

static bool forgetRowBlocks(ModuleOp module) {
  SmallVector<func::CallOp> calls = findRowBlockCalls(module);
  for (func::CallOp call : calls)
    call.erase();
  return !calls.empty();
}

/// Of each block one row less.
static bool shortenRowBlocks(ModuleOp module) {
  SmallVector<func::CallOp> calls = findRowBlockCalls(module);
  for (func::CallOp call : calls) {
    OpBuilder builder(call);
    Value one = arith::ConstantIntOp::create(builder, call.getLoc(), 1, 64);
    call->setOperand(4, arith::SubIOp::create(builder, call.getLoc(),
                                              call.getOperand(4), one));
  }
  return !calls.empty();
}

static bool dropPrefetches(ModuleOp module) {
  SmallVector<PrefetchOp> prefetches;
  module.walk([&](PrefetchOp op) { prefetches.push_back(op); });
  for (PrefetchOp op : prefetches)
    op.erase();
  return !prefetches.empty();
}

static bool commute(ModuleOp module) {
  bool any = false;
  module.walk([&](arith::MulFOp op) { any |= swapOperands(op); });
  return any;
}

std::vector<Fault> faults::getLowerFaults() {
  Stage lower = Stage::Lower;
  return {
      {"lower-tail-short", lower, "the loop after the vectors ends early",
       shortenTail},
      {"lower-vectors-short", lower, "the loop over vectors ends early",
       shortenVectors},
      {"lower-rows-short", lower, "the loop over rows ends early", shortenRows},
      {"lower-accumulates-in-f32", lower, "lanes add in f32", accumulateInF32},
      {"lower-fold-order", lower, "lanes are folded in another order",
       foldOtherwise},
      {"lower-begins-with-one", lower, "sums begin with one", beginWithOne},
      {"lower-leaf-size", lower, "leaves of 2048 elements", doubleLeaves},
      {"lower-double-rounding", lower, "a sum is rounded before it is divided",
       roundTwice},
      {"lower-train-without-rows", lower,
       "nothing is made of a block's rows before the phase that trails",
       forgetRowBlocks},
      {"lower-train-rows-short", lower,
       "of a block of rows the last is left out before the phase that trails",
       shortenRowBlocks},
      {"control-no-prefetch", lower, "nothing is prefetched", dropPrefetches},
      {"control-products-commuted", lower, "b * a", commute},
  };
}
