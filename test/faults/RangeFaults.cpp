//===- RangeFaults.cpp - faults in kernels of a rank's part ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "Seed.h"
#include "SeedFault.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::faults;

static bool isConstant(Value value, int64_t expected) {
  llvm::APInt constant;
  return value && matchPattern(value, m_ConstantInt(&constant)) &&
         constant.getSExtValue() == expected;
}

/// Whether it is a word of the row.
static bool isWord(Value value, int64_t number) {
  auto load = value.getDefiningOp<memref::LoadOp>();
  return load && value.getType().isInteger(64) &&
         isConstant(load.getIndices().front(), number);
}

static bool isOfFinish(Operation *op) {
  return op->getParentOfType<func::FuncOp>().getName().contains("_finish");
}

/// Adds a number to a value, wherever it is used.
static void addTo(Value value, int64_t number) {
  Operation *op = value.getDefiningOp();
  OpBuilder builder(op->getContext());
  builder.setInsertionPointAfter(op);
  Value other = arith::ConstantIntOp::create(builder, op->getLoc(),
                                             value.getType(), number);
  auto sum = arith::AddIOp::create(builder, op->getLoc(), value, other);
  value.replaceAllUsesExcept(sum, sum);
}

//===----------------------------------------------------------------------===//
// Extents
//===----------------------------------------------------------------------===//

/// Of [...b, n, m], whose rules have ranges of rows.
static constexpr int64_t kDims = 3;
static constexpr int64_t kBegin = STEPC_TILE_BEGIN(kDims),
                         kEnd = STEPC_TILE_END(kDims);

/// A mean is divided by the number of elements of the part.
static bool countPart(ModuleOp module) {
  bool any = false;
  module.walk([&](memref::LoadOp load) {
    for (int64_t word = STEPC_TILE_WHOLE(kDims); word < kBegin; ++word)
      if (isWord(load, word) && isOfFinish(load) && !load->use_empty()) {
        OpBuilder builder(load);
        load.setOperand(1, arith::ConstantIndexOp::create(
                               builder, load.getLoc(), word - kDims));
        any = true;
        break;
      }
  });
  return any;
}

//===----------------------------------------------------------------------===//
// Flat ranges
//===----------------------------------------------------------------------===//

static bool moveWord(ModuleOp module, int64_t word, int64_t by) {
  bool any = false;
  SmallVector<Value> words;
  module.walk([&](memref::LoadOp load) {
    if (isWord(load, word))
      words.push_back(load);
  });
  for (Value value : words) {
    addTo(value, by);
    any = true;
  }
  return any;
}
static bool endEarly(ModuleOp module) { return moveWord(module, kEnd, -1); }
static bool beginLate(ModuleOp module) { return moveWord(module, kBegin, 1); }

/// Operands are addressed as if the rank had them from the first element on.
static bool ignoreBegin(ModuleOp module) {
  bool any = false;
  module.walk([&](arith::SubIOp op) {
    bool isAddress = llvm::any_of(op->getUsers(), [](Operation *user) {
      return isa<arith::MulIOp>(user);
    });
    if (isAddress && isWord(op.getRhs(), kBegin))
      any |= replaceBy(op, op.getLhs());
  });
  return any;
}

/// How many rows, blocks or items a range touches: `last - first + 1` if there
/// is an element. In the order of their computation.
static bool countLess(ModuleOp module, size_t which, bool ofFinish) {
  bool any = false;
  module.walk([&](func::FuncOp function) {
    SmallVector<arith::SelectOp> counts;
    function.walk([&](arith::SelectOp op) {
      auto sum = op.getTrueValue().getDefiningOp<arith::AddIOp>();
      if (sum && isConstant(sum.getRhs(), 1) &&
          sum.getLhs().getDefiningOp<arith::SubIOp>() &&
          isConstant(op.getFalseValue(), 0))
        counts.push_back(op);
    });
    if (counts.size() <= which || isOfFinish(counts[which]) != ofFinish)
      return;
    counts[which].setOperand(
        1, counts[which].getTrueValue().getDefiningOp()->getOperand(0));
    any = true;
  });
  return any;
}
static bool countRows(ModuleOp module) { return countLess(module, 0, true); }
static bool countBlocks(ModuleOp module) { return countLess(module, 1, true); }
static bool countItems(ModuleOp module) { return countLess(module, 2, true); }
static bool runRows(ModuleOp module) { return countLess(module, 0, false); }

/// Calls `seed` with the first row of a range, `begin / columns`.
template <typename SeedT>
static bool seedFirstRows(ModuleOp module, bool ofFinish, SeedT &&seed) {
  bool any = false;
  SmallVector<arith::DivUIOp> rows;
  module.walk([&](arith::DivUIOp op) {
    if (isWord(op.getLhs(), kBegin) && isOfFinish(op) == ofFinish)
      rows.push_back(op);
  });
  for (arith::DivUIOp row : rows)
    any |= seed(row);
  return any;
}

static bool shiftRows(ModuleOp module) {
  return seedFirstRows(module, true, [](arith::DivUIOp row) {
    addTo(row, 1);
    return true;
  });
}

/// Results of a range's items go to the first items of the tensor.
static bool beginAtFirstItem(ModuleOp module) {
  return seedFirstRows(module, true, [](arith::DivUIOp row) {
    bool any = false;
    for (Operation *user : llvm::make_early_inc_range(row->getUsers())) {
      auto item = dyn_cast<arith::DivUIOp>(user);
      if (!item || item.getLhs() != row.getResult())
        continue;
      for (OpOperand &use : llvm::make_early_inc_range(item->getUses()))
        if (isa<arith::AddIOp>(use.getOwner()) &&
            use.getOwner()->getParentOfType<scf::ForOp>()) {
          OpBuilder builder(use.getOwner());
          use.set(arith::ConstantIntOp::create(builder, item.getLoc(), 0, 64));
          any = true;
        }
    }
    return any;
  });
}

//===----------------------------------------------------------------------===//
// Edges
//===----------------------------------------------------------------------===//

/// Whether the loop does nothing but store one number again and again.
static bool isFill(scf::ForOp loop) {
  memref::StoreOp only;
  for (Operation &op : loop.getBody()->without_terminator()) {
    if (isa<scf::ForOp, scf::IfOp, func::CallOp>(op))
      return false;
    if (auto store = dyn_cast<memref::StoreOp>(op)) {
      if (only)
        return false;
      only = store;
    }
  }
  return only && matchPattern(only.getValue(), m_Constant());
}

static void skip(scf::ForOp loop) { loop.setUpperBound(loop.getLowerBound()); }

/// Rows and columns that a range does not touch are not neutral.
static bool keepOutside(ModuleOp module) {
  bool any = false;
  module.walk([&](scf::ForOp loop) {
    if (!isa<func::FuncOp>(loop->getParentOp()) || !isOfFinish(loop) ||
        !isFill(loop))
      return;
    skip(loop);
    any = true;
  });
  return any;
}

/// Leaves of a row of which the range has a part only.
static bool keepEdgeRows(ModuleOp module) {
  bool any = false;
  module.walk([&](scf::ForOp loop) {
    auto cast = loop.getUpperBound().getDefiningOp<arith::IndexCastOp>();
    if (isOfFinish(loop) || !isFill(loop) || !cast ||
        !cast.getIn().getDefiningOp<arith::DivUIOp>())
      return;
    skip(loop);
    any = true;
  });
  return any;
}

/// The first or last column of an edge row: `min(max(x - first, low), high)`.
static bool moveClip(ModuleOp module, int64_t word, int64_t by) {
  SmallVector<Value> clipped;
  module.walk([&](arith::MinSIOp op) {
    auto low = op.getLhs().getDefiningOp<arith::MaxSIOp>();
    auto distance =
        low ? low.getLhs().getDefiningOp<arith::SubIOp>() : arith::SubIOp();
    if (distance && isWord(distance.getLhs(), word))
      clipped.push_back(op);
  });
  for (Value value : clipped)
    addTo(value, by);
  return !clipped.empty();
}
static bool clipLate(ModuleOp module) { return moveClip(module, kBegin, 1); }
static bool clipEarly(ModuleOp module) { return moveClip(module, kEnd, -1); }

/// Leaves that an edge row touches in part are not counted.
static bool floorLeaves(ModuleOp module) {
  bool any = false;
  module.walk([&](arith::SelectOp op) {
    auto quotient = op.getTrueValue().getDefiningOp<arith::DivUIOp>();
    auto sum = quotient ? quotient.getLhs().getDefiningOp<arith::AddIOp>()
                        : arith::AddIOp();
    if (!sum || !isConstant(sum.getRhs(), STEPC_LEAF - 1))
      return;
    quotient->setOperand(0, sum.getLhs());
    any = true;
  });
  return any;
}

/// Whether tiles are run at once is decided otherwise.
static bool decideTiles(ModuleOp module, bool atOnce) {
  bool any = false;
  module.walk([&](scf::IfOp op) {
    if (isOfFinish(op) || !op.getCondition().getDefiningOp<arith::AndIOp>())
      return;
    OpBuilder builder(op);
    op.getConditionMutable().assign(
        arith::ConstantIntOp::create(builder, op.getLoc(), atOnce, 1));
    any = true;
  });
  return any;
}
static bool runWholeTiles(ModuleOp module) { return decideTiles(module, true); }
static bool runRowByRow(ModuleOp module) { return decideTiles(module, false); }

std::vector<Fault> faults::getRangeFaults() {
  Stage lower = Stage::Lower;
  return {
      {"shard-mean-of-part", lower, "a mean divided by the rank's own number",
       countPart},
      {"shard-range-ends-early", lower, "the last element of a range left out",
       endEarly},
      {"shard-range-begins-late", lower, "a range shifted by an element",
       beginLate},
      {"shard-begin-ignored", lower, "operands from the tensor's beginning on",
       ignoreBegin},
      {"shard-last-row-lost", lower, "rows of a range, rounded down",
       countRows},
      {"shard-last-block-lost", lower, "blocks of a range, rounded down",
       countBlocks},
      {"shard-last-item-lost", lower, "items of a range, rounded down",
       countItems},
      {"shard-last-row-not-run", lower, "the last row of a range left out",
       runRows},
      {"shard-rows-shifted", lower, "results of rows one row further",
       shiftRows},
      {"shard-items-from-first", lower, "results of items from the first on",
       beginAtFirstItem},
      {"shard-outside-not-neutral", lower,
       "what was there for rows that the rank does not have", keepOutside},
      {"shard-edge-rows-not-cleared", lower,
       "what was there for leaves that the rank does not have", keepEdgeRows},
      {"shard-clip-late", lower, "an edge row without its first column",
       clipLate},
      {"shard-clip-early", lower, "an edge row without its last column",
       clipEarly},
      {"shard-leaves-floored", lower, "leaves of an edge row, rounded down",
       floorLeaves},
      {"shard-tiles-at-once", lower, "tiles of which the rank has a part",
       runWholeTiles},
      {"control-shard-row-by-row", lower, "whole tiles as if they were edges",
       runRowByRow},
  };
}
