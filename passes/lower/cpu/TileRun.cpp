//===- TileRun.cpp - functions over rows of elements ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/TileRun.h"

#include "passes/lower/cpu/ReductionTree.h"
#include "passes/lower/cpu/RowLanes.h"
#include "passes/lower/cpu/RunFunctions.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// Emits one run function. `row` holds the addresses of the row at hand.
class TileRunEmitter {
public:
  TileRunEmitter(OpBuilder &builder, TraverseOp traverse,
                 const ProgramStorage &storage, int64_t prefetchLines,
                 bool listed)
      : w(builder, traverse.getLoc()), traverse(traverse), listed(listed),
        body(builder, traverse, storage),
        accumulators(getAccumulators(traverse)) {
    int64_t streams = 0;
    for (const Operand &operand : body.getOperands()) {
      accesses.push_back(getAccess(traverse, operand));
      streams += isStream(accesses.size() - 1);
    }
    linesAhead = getLinesAhead(prefetchLines, streams);
  }

  func::FuncOp emit(StringRef name);

private:
  bool isAlongRow(unsigned k) const {
    return accumulators[k].is(Leaves::Lanes);
  }
  bool hasRowAccumulators() const {
    return llvm::any_of(
        accumulators, [](const Accumulator &a) { return a.is(Leaves::Lanes); });
  }
  /// Whether the loop over columns walks along the operand in memory.
  bool isStream(unsigned k) const {
    return accesses[k] == Access::Tile && body.getOperands()[k].isInMemory();
  }
  void emitRow(Value index);
  void emitLeaf(Value begin, Value end);
  SmallVector<Value> emitVectors(Value begin, Value end);
  SmallVector<Value> emitRest(Value begin, Value end, ValueRange lanes);
  void emitBody(int64_t lanes, Value column,
                function_ref<void(unsigned, Value)> accumulateRow);
  void emitPrefetch(Value column);
  void addToColumn(unsigned k, int64_t lanes, Value value, Value column);
  void storeElement(unsigned k, int64_t lanes, Value value, Value column);

  Words w;
  TraverseOp traverse;
  /// Whether positions are words in memory.
  bool listed;
  /// With the slots fixed, and the same with the row's operands too.
  BodyEmitter body, *current = nullptr;
  SmallVector<Accumulator> accumulators;
  int64_t linesAhead;
  SmallVector<Access> accesses;
  TileRunArguments in;
  /// Bytes by which lines are asked for ahead of the loop.
  Value ahead;
  /// For each accumulator along rows 16 f64 on the stack.
  SmallVector<Value> rests;
  SmallVector<Value> operandRows, partialRows;
};
} // namespace

/// Adds to the partial results of the columns from `column` on.
void TileRunEmitter::addToColumn(unsigned k, int64_t lanes, Value value,
                                 Value column) {
  Type f64 = w.b.getF64Type();
  Combiner combiner = accumulators[k].combiner;
  Value old = emitLoad(w, f64, lanes, partialRows[k], column);
  Value sum = emitCombined(w, combiner, old, value);
  emitStore(w, f64, lanes, sum, partialRows[k], column);
}

/// Each element is a leaf, and is added to +0.0 as all are.
void TileRunEmitter::storeElement(unsigned k, int64_t lanes, Value value,
                                  Value column) {
  Combiner combiner = accumulators[k].combiner;
  value = emitCombined(w, combiner, emitNeutral(w, combiner, lanes), value);
  emitStore(w, w.b.getF64Type(), lanes, value, partialRows[k], column);
}

void TileRunEmitter::emitBody(
    int64_t lanes, Value column,
    function_ref<void(unsigned, Value)> accumulateRow) {
  ArrayRef<Operand> operands = body.getOperands();
  auto load = [&](unsigned k) {
    if (listed && !operands[k].isInMemory())
      return emitLoad(w, w.b.getI64Type(), lanes, operandRows[k], column);
    return emitElement(w, operands[k], lanes, operandRows[k], column);
  };
  auto store = [&](unsigned k, Value value) {
    emitStore(w, operands[k].getStorage(), lanes, value, operandRows[k],
              column);
  };
  auto accumulate = [&](unsigned k, Value value) {
    if (lanes && !isa<VectorType>(value.getType()))
      value = vector::BroadcastOp::create(
          w.b, w.loc, VectorType::get({lanes}, value.getType()), value);
    if (isAlongRow(k))
      accumulateRow(k, value);
    else if (accumulators[k].is(Leaves::Columns))
      addToColumn(k, lanes, emitWidened(w, value), column);
    else
      storeElement(k, lanes, emitWidened(w, value), column);
  };
  current->emit(lanes, {load, store, accumulate});
}

void TileRunEmitter::emitPrefetch(Value column) {
  for (auto [k, operand] : llvm::enumerate(body.getOperands())) {
    if (!isStream(k))
      continue;
    Value offset = w.mul(w.toWord(column), w.constantWord(operand.getBytes()));
    Value target = w.add(w.add(operandRows[k], offset), ahead);
    PrefetchOp::create(w.b, w.loc, target, operand.writes());
  }
}

/// The whole vectors of a leaf; returns the lanes of accumulators along rows.
SmallVector<Value> TileRunEmitter::emitVectors(Value begin, Value end) {
  SmallVector<RowLanes> rows;
  SmallVector<Value> neutral;
  for (unsigned k = 0; k < accumulators.size(); ++k)
    if (isAlongRow(k)) {
      rows.emplace_back(w, traverse, accumulators[k]);
      neutral.push_back(rows.back().emitNeutral());
    }
  auto loop = scf::ForOp::create(w.b, w.loc, begin, end,
                                 w.constant(STEPC_LANES), neutral);
  OpBuilder::InsertionGuard guard(w.b);
  w.b.setInsertionPointToStart(loop.getBody());
  if (linesAhead)
    emitPrefetch(loop.getInductionVar());
  SmallVector<Value> next(loop.getRegionIterArgs());
  unsigned lane = 0;
  emitBody(STEPC_LANES, loop.getInductionVar(), [&](unsigned, Value value) {
    next[lane] = rows[lane].emitCombined(next[lane], value);
    ++lane;
  });
  if (neutral.empty())
    return {};
  scf::YieldOp::create(w.b, w.loc, next);
  SmallVector<Value> lanes;
  w.b.setInsertionPointAfter(loop);
  for (auto [row, result] : llvm::zip(rows, loop.getResults()))
    lanes.push_back(row.emitWidened(result));
  return lanes;
}

/// The elements of a leaf after the last whole vector, each in its lane.
SmallVector<Value> TileRunEmitter::emitRest(Value begin, Value end,
                                            ValueRange lanes) {
  Value zero = w.constant(0);
  Value some = w.isLess(begin, end);
  auto branch = scf::IfOp::create(w.b, w.loc, lanes.getTypes(), some,
                                  /*withElseRegion=*/!lanes.empty());
  OpBuilder::InsertionGuard guard(w.b);
  auto vector = VectorType::get({STEPC_LANES}, w.b.getF64Type());
  w.b.setInsertionPointToStart(branch.thenBlock());
  SmallVector<Combiner> combiners;
  for (auto [k, accumulator] : llvm::enumerate(accumulators)) {
    if (!isAlongRow(k))
      continue;
    Value neutral = emitNeutral(w, accumulator.combiner, STEPC_LANES);
    vector::StoreOp::create(w.b, w.loc, neutral, rests[combiners.size()],
                            ValueRange{zero});
    combiners.push_back(accumulator.combiner);
  }
  w.loop(begin, end, 1, [&](Value column) {
    Value lane = w.sub(column, begin);
    unsigned next = 0;
    emitBody(0, column, [&](unsigned, Value value) {
      // A lane has one more element at most.
      w.store(emitWidened(w, value), rests[next++], lane);
    });
  });
  if (lanes.empty())
    return {};
  SmallVector<Value> sums;
  for (auto [combiner, own, rest] : llvm::zip(combiners, lanes, rests)) {
    Value more =
        vector::LoadOp::create(w.b, w.loc, vector, rest, ValueRange{zero});
    sums.push_back(emitCombined(w, combiner, own, more));
  }
  scf::YieldOp::create(w.b, w.loc, sums);
  w.b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(w.b, w.loc, lanes);
  return SmallVector<Value>(branch.getResults());
}

void TileRunEmitter::emitLeaf(Value begin, Value end) {
  Value length = w.sub(end, begin);
  Value vectorEnd = w.add(begin, w.floorTo(length, STEPC_LANES));
  SmallVector<Value> lanes = emitVectors(begin, vectorEnd);
  lanes = emitRest(vectorEnd, end, lanes);
  Value leaf =
      arith::DivUIOp::create(w.b, w.loc, begin, w.constant(STEPC_LEAF));
  unsigned lane = 0;
  for (auto [k, accumulator] : llvm::enumerate(accumulators))
    if (isAlongRow(k))
      w.store(emitFolded(w, accumulator.combiner, lanes[lane++]),
              w.view(partialRows[k], w.b.getF64Type()), leaf);
}

void TileRunEmitter::emitRow(Value index) {
  Value row = w.toWord(index);
  operandRows.clear();
  partialRows.clear();
  SmallVector<Value> elements;
  Value zero = w.constant(0);
  for (auto [k, operand] : llvm::enumerate(body.getOperands())) {
    Value size = w.constantWord(operand.getBytes());
    Value address = in.operands[k];
    if (accesses[k] == Access::Tile)
      address = w.add(address, w.mul(w.mul(row, in.pitch), size));
    if (accesses[k] == Access::Row)
      address = w.add(address, w.mul(row, size));
    operandRows.push_back(address);
    bool fixed = accesses[k] == Access::Row || accesses[k] == Access::Item;
    elements.push_back(fixed && operand.reads()
                           ? emitLoad(w, operand.getStorage(), 0, address, zero)
                           : Value());
  }
  for (auto [k, accumulator] : llvm::enumerate(accumulators)) {
    Value pitch = isAlongRow(k) ? in.leaves : in.pitch;
    Value offset = w.mul(w.mul(row, pitch), w.constantWord(8));
    partialRows.push_back(accumulator.is(Leaves::Columns)
                              ? in.accumulators[k]
                              : w.add(in.accumulators[k], offset));
  }
  BodyEmitter rowBody = body;
  rowBody.fixOperands(elements);
  current = &rowBody;
  if (hasRowAccumulators())
    w.loop(zero, in.cols, STEPC_LEAF, [&](Value begin) {
      emitLeaf(begin, w.min(w.add(begin, w.constant(STEPC_LEAF)), in.cols));
    });
  else
    emitLeaf(zero, in.cols);
  current = nullptr;
}

func::FuncOp TileRunEmitter::emit(StringRef name) {
  int64_t numOperands = body.getOperands().size();
  int64_t numPartials = accumulators.size();
  func::FuncOp function = makeInternalFunction(
      w.b, w.loc, name, 2 + numOperands + numPartials + 2, 2);
  // Both kernels of the phase call it, for much work at a time.
  function->setAttr("passthrough",
                    w.b.getArrayAttr(w.b.getStringAttr("noinline")));
  OpBuilder::InsertionGuard guard(w.b);
  Block &entry = function.getBody().front();
  w.b.setInsertionPointToStart(&entry);
  in = TileRunArguments(entry.getArguments(), numOperands, numPartials);
  body.fixScalars(in.scalars, in.tensorSlots);
  auto lanes = MemRefType::get({STEPC_LANES}, w.b.getF64Type());
  for (unsigned k = 0; k < accumulators.size(); ++k)
    if (isAlongRow(k))
      rests.push_back(memref::AllocaOp::create(w.b, w.loc, lanes));
  // Little work asks for nothing: what lies behind it belongs to others.
  Value isLong =
      arith::CmpIOp::create(w.b, w.loc, arith::CmpIPredicate::sge,
                            w.mul(in.rows, in.cols), w.constant(kShortRun));
  ahead = w.select(isLong, w.constantWord(linesAhead * kLineBytes),
                   w.constantWord(0));
  w.loop(w.constant(0), in.rows, 1, [&](Value index) { emitRow(index); });
  func::ReturnOp::create(w.b, w.loc);
  return function;
}

static func::FuncOp getRun(OpBuilder &builder, TraverseOp traverse,
                           const ProgramStorage &storage, int64_t prefetchLines,
                           bool listed) {
  StringRef suffix = listed ? "_listed_run" : "_run";
  std::string name = (traverse.getSymName() + suffix).str();
  auto module = traverse->getParentOfType<ModuleOp>();
  if (auto function = module.lookupSymbol<func::FuncOp>(name))
    return function;
  return TileRunEmitter(builder, traverse, storage, prefetchLines, listed)
      .emit(name);
}

func::FuncOp mlir::step::getTileRun(OpBuilder &builder, TraverseOp traverse,
                                    const ProgramStorage &storage,
                                    int64_t prefetchLines) {
  return getRun(builder, traverse, storage, prefetchLines, /*listed=*/false);
}

func::FuncOp mlir::step::getListedTileRun(OpBuilder &builder,
                                          TraverseOp traverse,
                                          const ProgramStorage &storage,
                                          int64_t prefetchLines) {
  bool asks = llvm::any_of(getOperands(traverse), [](const Operand &operand) {
    return !operand.isInMemory();
  });
  return getRun(builder, traverse, storage, prefetchLines, asks);
}
