//===- ColumnSums.cpp - sums along columns, of a thread -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/ColumnSums.h"

#include "passes/lower/BodyEmitter.h"
#include "passes/lower/Combiners.h"

using namespace mlir;
using namespace mlir::step;

ColumnSums::ColumnSums(const Words &w, TraverseOp traverse, int64_t lanes)
    : w(w), accumulators(getAccumulators(traverse)), lanes(lanes),
      goesOn(traverse.isKernel() &&
             cast<ProgramOp>(traverse->getParentOp()).isFlatRange()) {
  for (auto [k, accumulator] : llvm::enumerate(accumulators))
    if (accumulator.is(Leaves::Columns))
      alongColumn.push_back(k);
}

/// What earlier runs have left of accumulator `k`.
Value ColumnSums::load(const TileRunArguments &in, unsigned k, Value column,
                       Value isThere) const {
  Type f64 = w.b.getF64Type();
  return w.choose(
      VectorType::get({lanes}, f64), isThere,
      [&] { return emitLoad(w, f64, lanes, in.accumulators[k], column); },
      [&] { return emitNeutral(w, getCombiner(k), lanes); });
}

SmallVector<Value> ColumnSums::begin(const TileRunArguments &in, Value column,
                                     Value isThere) const {
  SmallVector<Value> vectors;
  for (unsigned k : alongColumn)
    vectors.push_back(goesOn ? load(in, k, column, isThere)
                             : emitNeutral(w, getCombiner(k), lanes));
  return vectors;
}

void ColumnSums::add(unsigned k, Value value,
                     SmallVectorImpl<Value> &vectors) const {
  Value &own = vectors[llvm::find(alongColumn, k) - alongColumn.begin()];
  own = emitCombined(w, getCombiner(k), own, emitWidened(w, value));
}

void ColumnSums::store(const TileRunArguments &in, Value column, Value isThere,
                       ValueRange vectors) const {
  if (vectors.empty())
    return;
  w.when(isThere, [&] {
    for (auto [k, own] : llvm::zip(alongColumn, vectors))
      emitStore(w, w.b.getF64Type(), lanes, own, in.accumulators[k], column);
  });
}

void ColumnSums::clear(const TileRunArguments &in, Value column) const {
  for (unsigned k : alongColumn)
    w.store(emitNeutral(w, getCombiner(k), 0),
            w.view(in.accumulators[k], w.b.getF64Type()), column);
}

void ColumnSums::add(const TileRunArguments &in, unsigned k, Value value,
                     Value column) const {
  Value sum = w.view(in.accumulators[k], w.b.getF64Type());
  w.store(emitCombined(w, getCombiner(k), w.load(sum, column),
                       emitWidened(w, value)),
          sum, column);
}
