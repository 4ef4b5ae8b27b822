//===- TilePhase.cpp - what a phase does with one tile --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/TilePhase.h"

#include "passes/lower/cpu/Gather.h"
#include "passes/lower/cpu/ReductionTree.h"
#include "passes/lower/cpu/RunFunctions.h"
#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

TilePhase::TilePhase(const Words &w, TraverseOp traverse, func::FuncOp run)
    : w(w), traverse(traverse), run(run), operands(getOperands(traverse)),
      accumulators(getAccumulators(traverse)) {}

void TilePhase::allocateCopies() {
  for (const Operand &operand : operands) {
    int64_t bytes = operand.isInMemory() ? operand.getBytes() : 8;
    copies.push_back(isOfElements(traverse, operand)
                         ? emitStackBuffer(w, STEPC_LEAF * bytes)
                         : Value());
  }
}

void TilePhase::clearColumns(const TileRow &row, const Tile &tile) const {
  for (const Accumulator &accumulator : accumulators) {
    if (!accumulator.is(Leaves::Columns))
      continue;
    Value address = getPartialAddress(w, row, tile, accumulator);
    Value columns = w.toIndex(tile.columns);
    Value vectors = w.floorTo(columns, STEPC_LANES);
    Type f64 = w.b.getF64Type();
    w.loop(w.constant(0), vectors, STEPC_LANES, [&](Value i) {
      emitStore(w, f64, STEPC_LANES,
                emitNeutral(w, accumulator.combiner, STEPC_LANES), address, i);
    });
    w.loop(vectors, columns, 1, [&](Value i) {
      emitStore(w, f64, 0, emitNeutral(w, accumulator.combiner, 0), address, i);
    });
  }
}

void TilePhase::emitContiguous(const TileRow &row, const Tile &tile) const {
  emitRun(row, tile, w.toIndex(tile.rows));
}

/// Runs the phase on `rows` (an index) rows of dense elements.
void TilePhase::emitRun(const TileRow &row, const Tile &tile,
                        Value rows) const {
  TileRunArguments in;
  in.scalars = row.scalars;
  in.tensorSlots = row.tensorSlots;
  for (const Operand &operand : operands)
    in.operands.push_back(getOperandAddress(w, row, tile, traverse, operand));
  for (const Accumulator &accumulator : accumulators)
    in.accumulators.push_back(getPartialAddress(w, row, tile, accumulator));
  in.pitch = row.M;
  in.leaves = row.leaves;
  in.rows = rows;
  in.cols = w.toIndex(tile.columns);
  func::CallOp::create(w.b, w.loc, run, in.getValues());
}

/// A part of one row, at most a leaf: copied, run and copied back.
void TilePhase::emitStridedLeaf(const TileRow &row, const Tile &leaf) const {
  Value first = w.add(w.mul(leaf.item, row.N), leaf.firstRow);
  first = w.add(w.mul(first, row.M), leaf.firstColumn);
  auto getMemory = [&](const Operand &operand) {
    return StridedMemory{row.getAddress(operand.buffer), row.getRank(),
                         row.getExtentWords(), row.getStrides(operand.buffer),
                         operand.getBytes()};
  };
  TileRunArguments in;
  in.scalars = row.scalars;
  in.tensorSlots = row.tensorSlots;
  for (auto [operand, copy] : llvm::zip(operands, copies)) {
    if (!copy) {
      in.operands.push_back(getOperandAddress(w, row, leaf, traverse, operand));
      continue;
    }
    in.operands.push_back(copy);
    if (!operand.isInMemory())
      emitAddresses(w, getMemory(operand), first, leaf.columns, copy);
    else if (operand.reads())
      emitGather(w, getMemory(operand), first, leaf.columns, copy);
  }
  for (const Accumulator &accumulator : accumulators)
    in.accumulators.push_back(getPartialAddress(w, row, leaf, accumulator));
  in.pitch = row.M;
  in.leaves = row.leaves;
  in.rows = w.constant(1);
  in.cols = w.toIndex(leaf.columns);
  func::CallOp::create(w.b, w.loc, run, in.getValues());
  for (auto [operand, copy] : llvm::zip(operands, copies))
    if (copy && operand.writes())
      emitScatter(w, getMemory(operand), first, leaf.columns, copy);
}

void TilePhase::emitStrided(const TileRow &row, const Tile &tile) const {
  w.loop(w.constant(0), w.toIndex(tile.rows), 1, [&](Value r) {
    w.loop(w.constant(0), w.toIndex(tile.columns), STEPC_LEAF, [&](Value c) {
      Value column = w.toWord(c);
      Tile leaf = tile;
      leaf.firstRow = w.add(tile.firstRow, w.toWord(r));
      leaf.firstColumn = w.add(tile.firstColumn, column);
      leaf.columns =
          w.min(w.sub(tile.columns, column), w.constantWord(STEPC_LEAF));
      emitStridedLeaf(row, leaf);
    });
  });
}

/// What is accumulated along a row that is not in the tile as a whole starts
/// from the neutral value: not all of its leaves are touched.
void TilePhase::clearRow(const TileRow &row, const Tile &line) const {
  Type f64 = w.b.getF64Type();
  for (const Accumulator &accumulator : accumulators) {
    if (!accumulator.is(Leaves::Lanes))
      continue;
    Value leaves = w.view(getPartialAddress(w, row, line, accumulator), f64);
    w.loop(w.constant(0), w.toIndex(w.ceilDiv(line.columns, STEPC_LEAF)), 1,
           [&](Value leaf) {
             w.store(emitNeutral(w, accumulator.combiner, 0), leaves, leaf);
           });
  }
}

/// One row of a tile, of which the range has some columns or none: leaf by
/// leaf.
void TilePhase::emitRangeRow(const TileRow &row, const Tile &line) const {
  clearRow(row, line);
  forEachLeafOfRange(w, row, line, [&](const Tile &leaf) {
    emitRun(row, leaf, w.constant(1));
  });
}

/// A tile of a flat range: at once where the range has all of it.
void TilePhase::emitRange(const TileRow &row, const Tile &tile) const {
  emitTileOfRange(
      w, row, tile, [&] { emitRun(row, tile, w.toIndex(tile.rows)); },
      [&](const Tile &line) { emitRangeRow(row, line); });
}
