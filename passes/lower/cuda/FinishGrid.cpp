//===- FinishGrid.cpp - what a block runs once for a tensor ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/FinishResults.h"
#include "passes/lower/cuda/BlockRun.h"
#include "passes/lower/cuda/BlockTree.h"
#include "passes/lower/cuda/GridKernel.h"
#include "passes/lower/cuda/TileGrid.h"
#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// Emits the entries of one finish. `row` is the row of the table that the
/// block works on; each entry ends when all threads have.
class BlockFinishEmitter {
public:
  BlockFinishEmitter(const Words &w, ProgramOp program, const TileRow &row)
      : w(w), program(program), row(row) {}

  void emitCombine(CombineOp combine);
  void emitReceive(ReceiveOp receive);
  void emitVectors(PhaseOp phase, func::FuncOp run);
  void emitScalars(TensorScalarsOp scalars) {
    emitByOneThread(w, [&] { emitTensorScalars(w, row, scalars); });
  }

private:
  void combineAll(CombineOp combine, const Destination &to, const Extents &in);
  void combineColumns(const PartialGroups &leaves, const Destination &to);
  void combineRows(Level level, Value partial, const Destination &to,
                   const Extents &in);
  void storeFirst(const PartialGroups &in, const Destination &to);
  void store(const Destination &to, Value sum, Value index) {
    storeResult(w, program, row, to, sum, index);
  }
  Value loadAt(Value address, Value index) const {
    return w.load(w.view(address, w.b.getF64Type()), w.toIndex(index));
  }

  const Words &w;
  ProgramOp program;
  const TileRow &row;
};
} // namespace

/// The first entry of each group is its result.
void BlockFinishEmitter::storeFirst(const PartialGroups &in,
                                    const Destination &to) {
  emitBlockLoop(w, in.groups, [&](Value group) {
    store(to, loadAt(in.address, w.mul(group, in.pitch)), group);
  });
}

void BlockFinishEmitter::combineColumns(const PartialGroups &leaves,
                                        const Destination &to) {
  emitBlockPairwise(w, to.combiner, leaves, row.M);
  emitBlockLoop(w, w.mul(row.B, row.M), [&](Value i) {
    Value item = w.div(i, row.M), column = w.rem(i, row.M);
    store(to, loadAt(leaves.address, w.add(w.mul(item, leaves.pitch), column)),
          i);
  });
}

/// First the leaves of each row, then the rows of each item, then the items; as
/// far as the level goes.
void BlockFinishEmitter::combineRows(Level level, Value partial,
                                     const Destination &to, const Extents &in) {
  Value one = w.constantWord(1), zero = w.constantWord(0);
  PartialGroups leaves{partial, w.mul(in.items, in.rows), in.leaves, in.leaves,
                       one};
  emitBlockPairwise(w, to.combiner, leaves, one);
  if (level == Level::Rows)
    return storeFirst(leaves, to);
  Value itemPitch = w.mul(in.rows, in.leaves);
  PartialGroups rows{partial, in.items, itemPitch, in.rows, in.leaves};
  emitBlockSequence(w, to.combiner, rows);
  if (level == Level::Items)
    return storeFirst(rows, to);
  PartialGroups items{partial, one, zero, in.items, itemPitch};
  emitBlockSequence(w, to.combiner, items);
  storeFirst(items, to);
}

void BlockFinishEmitter::combineAll(CombineOp combine, const Destination &to,
                                    const Extents &in) {
  Value elements = w.mul(in.items, w.mul(in.rows, in.columns));
  Value partial = row.getBuffer(combine.getPartial());
  w.branch(
      w.isLess(w.constantWord(0), elements),
      [&] {
        if (combine.getLevel() == Level::Columns)
          combineColumns({partial, row.B, w.mul(row.rowBlocks, row.M),
                          row.rowBlocks, row.M},
                         to);
        else
          combineRows(combine.getLevel(), partial, to, in);
      },
      [&] {
        emitBlockLoop(w, countResults(w, combine.getLevel(), in),
                      [&](Value index) {
                        store(to, emitNeutral(w, to.combiner, 0), index);
                      });
      });
}

void BlockFinishEmitter::emitCombine(CombineOp combine) {
  Extents in = getExtents(w, row, combine.getSpace());
  Destination to = getDestination(w, combine, in);
  if (!combine.getUnless())
    return combineAll(combine, to, in);
  Type f64 = w.b.getF64Type();
  Value zero = arith::ConstantOp::create(w.b, w.loc, w.b.getF64FloatAttr(0.0));
  Value slot = w.load(w.view(row.tensorSlots, f64), *combine.getUnless());
  Value leftOut =
      arith::CmpFOp::create(w.b, w.loc, arith::CmpFPredicate::UNE, slot, zero);
  // The partial results are not there.
  w.branch(
      leftOut,
      [&] { emitByOneThread(w, [&] { store(to, zero, w.constantWord(0)); }); },
      [&] { combineAll(combine, to, in); });
}

void BlockFinishEmitter::emitReceive(ReceiveOp receive) {
  Extents in = getExtents(w, row, receive.getSpace());
  Destination to = getDestination(w, receive, in);
  emitBlockLoop(w, countResults(w, receive.getLevel(), in), [&](Value index) {
    store(to, loadReceived(w, row, receive, w.toIndex(index)), index);
  });
}

/// A phase of vectors: those of all items are the rows of one run.
void BlockFinishEmitter::emitVectors(PhaseOp phase, func::FuncOp run) {
  Extents in = getExtents(w, row, phase.getSpace());
  TileRunArguments arguments;
  arguments.scalars = row.scalars;
  arguments.tensorSlots = row.tensorSlots;
  for (auto operand : phase.getOperands().getAsRange<OperandAttr>())
    arguments.operands.push_back(row.getAddress(operand));
  for (auto accumulator : phase.getAccumulators().getAsRange<AccumulatorAttr>())
    arguments.accumulators.push_back(row.getBuffer(accumulator.getPartial()));
  arguments.pitch = in.columns;
  arguments.leaves = in.leaves;
  arguments.rows = w.toIndex(in.items);
  arguments.cols = w.toIndex(in.columns);
  func::CallOp::create(w.b, w.loc, run, arguments.getValues());
}

void mlir::step::emitFinishGrid(OpBuilder &builder, ProgramOp program,
                                StringRef name, ArrayRef<Operation *> entries) {
  // Their functions first: one does not stand inside the other.
  DenseMap<Operation *, func::FuncOp> runs;
  for (Operation *entry : entries)
    if (auto phase = dyn_cast<PhaseOp>(entry))
      runs[phase] =
          emitBlockRun(builder, phase, (phase.getSymName() + "_run").str());
  Words w(builder, program.getLoc());
  emitChunkKernel(w, name, [&](const CallWords &call, Value number) {
    Value index = w.load(w.words(call.chunks), w.mul(number, w.constant(3)));
    TileRow row(w, program, call, index);
    BlockFinishEmitter emitter(w, program, row);
    for (Operation *entry : entries) {
      if (auto combine = dyn_cast<CombineOp>(entry))
        emitter.emitCombine(combine);
      else if (auto receive = dyn_cast<ReceiveOp>(entry))
        emitter.emitReceive(receive);
      else if (auto phase = dyn_cast<PhaseOp>(entry))
        emitter.emitVectors(phase, runs.lookup(phase));
      else
        emitter.emitScalars(cast<TensorScalarsOp>(entry));
      emitBarrier(w);
    }
  });
}

void mlir::step::emitStatisticGrid(const Words &w, StringRef name,
                                   Combiner combiner) {
  Type f64 = w.b.getF64Type();
  emitBlockListKernel(w, name, 4, [&](ArrayRef<Value> entry) {
    Value sources = w.words(entry[0]), count = entry[1];
    Value scratch = w.view(entry[2], f64), zero = w.constantWord(0);
    Value neutral = emitNeutral(w, combiner, 0);
    emitBlockLoop(w, count, [&](Value i) {
      Value index = w.toIndex(i), source = w.load(sources, index);
      Value isMissing = arith::CmpIOp::create(
          w.b, w.loc, arith::CmpIPredicate::eq, source, zero);
      w.branch(
          isMissing, [&] { w.store(neutral, scratch, index); },
          [&] {
            w.store(w.load(w.view(source, f64), int64_t(0)), scratch, index);
          });
    });
    emitBarrier(w);
    PartialGroups all{entry[2], w.constantWord(1), zero, count,
                      w.constantWord(1)};
    emitBlockSequence(w, combiner, all);
    emitByOneThread(w, [&] {
      Value result = w.view(entry[3], f64);
      w.branch(
          w.isLess(zero, count),
          [&] { w.store(w.load(scratch, int64_t(0)), result, w.constant(0)); },
          [&] { w.store(neutral, result, w.constant(0)); });
    });
    emitBarrier(w);
  });
}
