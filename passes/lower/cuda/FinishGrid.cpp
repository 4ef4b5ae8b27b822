//===- FinishGrid.cpp - what a block runs once for a tensor ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/BlockProduct.h"
#include "passes/lower/cuda/BlockRun.h"
#include "passes/lower/cuda/BlockTree.h"
#include "passes/lower/cuda/GridKernel.h"
#include "passes/lower/cuda/TileGrid.h"
#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// All threads of a block run the finish.
class BlockPolicy : public FinishPolicy {
public:
  using FinishPolicy::FinishPolicy;

  void forEach(const Places &places,
               function_ref<void(Value, Value)> emitBody) const override {
    emitBlockLoop(w, places.getCount(w), [&](Value number) {
      emitBody(number, places.getOffset(w, number));
    });
  }
  void byOne(function_ref<void()> emitBody) const override {
    emitByOneThread(w, emitBody);
  }
  void wait() const override { emitBarrier(w); }
  void foldPairwise(Combiner combiner, const Entries &entries,
                    Value width) const override {
    emitBlockPairwise(w, combiner, entries, width ? width : w.constantWord(1));
  }
  void foldSequence(Combiner combiner, const Entries &entries) const override {
    emitBlockSequence(w, combiner, entries);
  }
  void multiply(const Product &product) const override {
    callProduct(w, product, emitBlockProduct);
  }
  /// `step-lower-phases-to-cuda` has refused the program. What comes here in
  /// spite of it is refused as it is converted: no call of a routine can be.
  void call(const RoutineCall &routine) const override {
    RoutineCall none = routine;
    none.routines = w.constantWord(0);
    callRoutine(w, none);
  }
  void runVectors(const TileRow &row, TraverseOp traverse,
                  func::FuncOp run) const override;
};
} // namespace

/// Whether items lie one behind the other in each operand, which has the dims
/// of the traversal, or all but the innermost.
static bool areItemsRows(TraverseOp traverse) {
  DimSet over = getDimSet(traverse), items = over;
  if (std::optional<unsigned> lane = over.getInnermost())
    items = over - DimSet::of(*lane);
  return llvm::all_of(getOperands(traverse), [&](const Operand &operand) {
    DimSet own = getDimSet(traverse, operand);
    return own == over || own == items;
  });
}

/// All items are the rows of one run, or there is a run for each.
void BlockPolicy::runVectors(const TileRow &row, TraverseOp traverse,
                             func::FuncOp run) const {
  Value items = countItems(row, traverse);
  if (areItemsRows(traverse)) {
    TileRunArguments in =
        getVectorArguments(w, row, traverse, w.constantWord(0));
    in.rows = w.toIndex(items);
    func::CallOp::create(w.b, w.loc, run, in.getValues());
    return;
  }
  w.loop(w.constant(0), w.toIndex(items), 1, [&](Value item) {
    TileRunArguments in = getVectorArguments(w, row, traverse, w.toWord(item));
    func::CallOp::create(w.b, w.loc, run, in.getValues());
  });
}

void mlir::step::emitFinishGrid(OpBuilder &builder,
                                const ProgramStorage &storage, StringRef name,
                                ArrayRef<Operation *> entries) {
  // Their functions first: one does not stand inside the other.
  DenseMap<Operation *, func::FuncOp> runs;
  for (Operation *entry : entries)
    if (auto traverse = dyn_cast<TraverseOp>(entry))
      runs[entry] = emitBlockRun(builder, traverse, storage,
                                 (traverse.getSymName() + "_run").str());
  Words w(builder, storage.getProgram()->getLoc());
  auto emitRow = [&](const CallWords &call, Value number) {
    Value index = w.load(w.words(call.chunks), w.mul(number, w.constant(3)));
    TileRow row(w, storage, call, index);
    BlockPolicy policy(w);
    FinishEmitter(w, row, policy).emit(entries, runs);
  };
  requireBlocks(emitChunkKernel(w, name, emitRow), 1);
}

void mlir::step::emitStatisticGrid(const Words &w, StringRef name,
                                   Combiner combiner) {
  Type f64 = w.b.getF64Type();
  auto emitEntry = [&](ArrayRef<Value> entry) {
    Value sources = w.words(entry[0]), count = entry[1];
    Value scratch = w.view(entry[2], f64), zero = w.constantWord(0);
    Value neutral = emitNeutral(w, combiner, 0);
    emitBlockLoop(w, count, [&](Value i) {
      Value index = w.toIndex(i), source = w.load(sources, index);
      w.branch(
          w.isZero(source), [&] { w.store(neutral, scratch, index); },
          [&] {
            w.store(w.load(w.view(source, f64), int64_t(0)), scratch, index);
          });
    });
    emitBarrier(w);
    Entries all{entry[2], Places(), count, w.constantWord(1)};
    emitBlockSequence(w, combiner, all);
    emitByOneThread(w, [&] {
      Value result = w.view(entry[3], f64);
      w.branch(
          w.isLess(zero, count),
          [&] { w.store(w.load(scratch, int64_t(0)), result, w.constant(0)); },
          [&] { w.store(neutral, result, w.constant(0)); });
    });
    emitBarrier(w);
  };
  requireBlocks(emitBlockListKernel(w, name, 4, emitEntry), 1);
}
