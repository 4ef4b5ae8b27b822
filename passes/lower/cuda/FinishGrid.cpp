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
  void multiply(const Product &) const override {
    llvm_unreachable("products are spread");
  }
  void call(const RoutineCall &) const override {
    llvm_unreachable("the host does it, between two launches");
  }
  void runVectors(const TileRow &row, TraverseOp traverse,
                  func::FuncOp run) const override;
};

/// All threads of the grid run one operation, of which no element has to do
/// with another one.
class GridPolicy : public BlockPolicy {
public:
  /// `tilesBefore` of products, of the rows before, were shared out: the next
  /// one is that of the next block. Below the workspace lie the blocks' scratch
  /// memories.
  GridPolicy(const Words &w, Value workspace, Value tilesBefore)
      : BlockPolicy(w), workspace(workspace), tilesBefore(tilesBefore) {}

  void forEach(const Places &places,
               function_ref<void(Value, Value)> emitBody) const override {
    auto [thread, threads] = emitGridThread(w);
    w.loop(thread, w.toIndex(places.getCount(w)), threads, [&](Value index) {
      Value number = w.toWord(index);
      emitBody(number, places.getOffset(w, number));
    });
  }
  void byOne(function_ref<void()> emitBody) const override {
    emitOnce(w, emitBody);
  }
  void wait() const override {
    llvm_unreachable("blocks do not wait for each other");
  }
  void foldPairwise(Combiner, const Entries &, Value) const override { wait(); }
  void foldSequence(Combiner, const Entries &) const override { wait(); }
  void multiply(const Product &product) const override;
  void runVectors(const TileRow &row, TraverseOp traverse,
                  func::FuncOp run) const override;

private:
  Value workspace, tilesBefore;
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

/// The number of the block, and how many there are, words.
static std::pair<Value, Value> getBlock(const Words &w) {
  Value block = gpu::BlockIdOp::create(w.b, w.loc, gpu::Dimension::x);
  Value blocks = gpu::GridDimOp::create(w.b, w.loc, gpu::Dimension::x);
  return {w.toWord(block), w.toWord(blocks)};
}

void GridPolicy::multiply(const Product &product) const {
  auto [block, blocks] = getBlock(w);
  Value before =
      w.add(tilesBefore, w.mul(product.item, countProductTiles(w, product)));
  Product own = product;
  own.firstTile =
      w.rem(w.sub(w.add(block, blocks), w.rem(before, blocks)), blocks);
  own.scratch = w.sub(workspace, w.mul(w.add(block, w.constantWord(1)),
                                       w.constantWord(STEPC_BLOCK_SCRATCH)));
  callProduct(w, own, emitTiledProduct);
}

/// How many tiles a product has, of all of the batch; none where its `unless`
/// holds.
static Value countTiles(const Words &w, const TileRow &row, ProductOp op) {
  ProductSize size = getProductSize(w, row, op);
  Product product = {};
  product.rows = size.rows;
  product.columns = size.columns;
  product.compute = getComputeType(op);
  product.isSymmetric = op.getSymmetric();
  product.inPairs = op.getRounded();
  Value tiles = w.mul(size.items, countProductTiles(w, product));
  if (Value unless = op.getUnless())
    tiles = w.select(row.getScalar(unless), w.constantWord(0), tiles);
  return tiles;
}

/// Each block has some of the items, which are rows of one run.
void GridPolicy::runVectors(const TileRow &row, TraverseOp traverse,
                            func::FuncOp run) const {
  assert(areItemsRows(traverse) && "what is spread has rows");
  Value items = countItems(row, traverse);
  auto [block, blocks] = getBlock(w);
  Value share = w.div(w.sub(w.add(items, blocks), w.constantWord(1)), blocks);
  Value begin = w.min(w.mul(block, share), items);
  TileRunArguments in = getVectorArguments(w, row, traverse, begin);
  in.rows = w.toIndex(w.min(share, w.sub(items, begin)));
  func::CallOp::create(w.b, w.loc, run, in.getValues());
}

/// A block for each row, which does all of it.
static void emitRows(const Words &w, const ProgramStorage &storage,
                     const FinishStage &stage,
                     const DenseMap<Operation *, func::FuncOp> &runs) {
  auto emitRow = [&](const CallWords &call, Value number) {
    Value index = w.load(w.words(call.chunks), w.mul(number, w.constant(3)));
    TileRow row(w, storage, call, index);
    BlockPolicy policy(w);
    FinishEmitter(w, row, policy).emit(stage.entries, runs);
  };
  requireBlocks(emitChunkKernel(w, stage.name, emitRow), 1);
}

/// All blocks go from row to row.
static void emitSpread(const Words &w, const ProgramStorage &storage,
                       const FinishStage &stage,
                       const DenseMap<Operation *, func::FuncOp> &runs) {
  Operation *op = stage.entries.front();
  auto emitRow = [&](const CallWords &call, Value number, Value before) {
    Value index = w.load(w.words(call.chunks), w.mul(number, w.constant(3)));
    TileRow row(w, storage, call, index);
    GridPolicy policy(w, call.workspace, before);
    if (stage.kind == FinishStage::Hand)
      emitHanded(w, row, policy, cast<RoutineOpInterface>(op));
    else if (stage.kind == FinishStage::Take)
      emitTaken(w, row, policy, cast<RoutineOpInterface>(op));
    else if (auto traverse = dyn_cast<TraverseOp>(op))
      policy.runVectors(row, traverse, runs.lookup(op));
    else
      emitMatrices(w, row, policy, cast<ProgramMatrixOpInterface>(op));
    auto product = dyn_cast<ProductOp>(op);
    return product ? w.add(before, countTiles(w, row, product)) : before;
  };
  requireBlocks(emitSpreadKernel(w, stage.name, emitRow), 1);
}

void mlir::step::emitFinishGrid(OpBuilder &builder,
                                const ProgramStorage &storage,
                                const ScheduleEntry &finish) {
  // Their functions first: one does not stand inside the other.
  DenseMap<Operation *, func::FuncOp> runs;
  for (Operation *entry : finish.finish)
    if (auto traverse = dyn_cast<TraverseOp>(entry))
      runs[entry] = emitBlockRun(builder, traverse, storage,
                                 (traverse.getSymName() + "_run").str());
  Words w(builder, storage.getProgram()->getLoc());
  for (const FinishStage &stage : getStages(finish)) {
    if (stage.kind == FinishStage::Rows)
      emitRows(w, storage, stage, runs);
    else if (stage.kind != FinishStage::Call)
      emitSpread(w, storage, stage, runs);
  }
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
