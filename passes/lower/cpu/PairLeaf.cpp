//===- PairLeaf.cpp - leaves of products of bf16 --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/PairLeaf.h"

#include "passes/lower/BodyEmitter.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cstddef>

using namespace mlir;
using namespace mlir::step;

/// Of a panel of pairs.
static constexpr int64_t kLanes = STEPC_PANEL_BYTES / sizeof(int32_t);

/// The pair of the tile's row at step k, in an i32.
static Value loadPair(const Words &w, const LeafWork &work, Value k,
                      const PairTile &tile, int64_t row) {
  Value index = w.add(w.mul(k, w.constant(tile.numRows)), w.constant(row));
  return emitLoad(w, w.b.getI32Type(), 0, work.packed, index);
}

/// Those of each panel.
static SmallVector<Value> loadPairs(const Words &w, const LeafWork &work,
                                    Value k, const PairTile &tile) {
  SmallVector<Value> pairs;
  Value panel = work.panel;
  for (int64_t number = 0; number < tile.numPanels; ++number) {
    if (number > 0)
      panel = w.add(panel, work.panelPitch);
    pairs.push_back(emitLoad(w, w.b.getI32Type(), kLanes, panel,
                             w.mul(k, w.constant(kLanes))));
  }
  return pairs;
}

static Value broadcast(const Words &w, Value element) {
  auto type = VectorType::get({kLanes}, element.getType());
  return vector::BroadcastOp::create(w.b, w.loc, type, element);
}

static SmallVector<Value> addDots(const Words &w, const LeafWork &work,
                                  const PairTile &tile, Value k,
                                  ValueRange before) {
  SmallVector<Value> pairs = loadPairs(w, work, k, tile), after;
  for (int64_t row = 0; row < tile.numRows; ++row) {
    Value pair = broadcast(w, loadPair(w, work, k, tile, row));
    for (Value panel : pairs) {
      Value sum = before[after.size()];
      after.push_back(
          DotPairsOp::create(w.b, w.loc, sum.getType(), sum, pair, panel));
    }
  }
  return after;
}

/// The f32 in the upper halves of pairs, or in the lower ones.
static Value getFactors(const Words &w, Value pairs, bool isUpper) {
  auto constant = [&](uint32_t bits) -> Value {
    Value value = arith::ConstantOp::create(
        w.b, w.loc, w.b.getI32IntegerAttr(int32_t(bits)));
    return isa<VectorType>(pairs.getType()) ? broadcast(w, value) : value;
  };
  Value bits =
      isUpper
          ? Value(arith::AndIOp::create(w.b, w.loc, pairs, constant(~0xffffu)))
          : Value(arith::ShLIOp::create(w.b, w.loc, pairs, constant(16)));
  Type type = w.b.getF32Type();
  if (auto vector = dyn_cast<VectorType>(pairs.getType()))
    type = vector.clone(type);
  return arith::BitcastOp::create(w.b, w.loc, type, bits);
}

/// The second of each pair first, as dot products have it.
static SmallVector<Value> addFused(const Words &w, const LeafWork &work,
                                   const PairTile &tile, Value k,
                                   ValueRange before) {
  SmallVector<Value> pairs = loadPairs(w, work, k, tile), after(before);
  for (bool isUpper : {true, false}) {
    SmallVector<Value> factors = llvm::map_to_vector(
        pairs, [&](Value panel) { return getFactors(w, panel, isUpper); });
    for (auto [number, sum] : llvm::enumerate(after)) {
      int64_t row = int64_t(number) / tile.numPanels;
      Value pair = loadPair(w, work, k, tile, row);
      Value factor = broadcast(w, getFactors(w, pair, isUpper));
      sum = math::FmaOp::create(w.b, w.loc, factor,
                                factors[number % tile.numPanels], sum);
    }
  }
  return after;
}

/// Whether the processor has dot products of bf16.
static Value hasDots(const Words &w, Value routines) {
  constexpr size_t word = offsetof(StepcRoutines, hasDots) / sizeof(int64_t);
  Value has = w.load(w.words(routines), int64_t(word));
  return w.isLess(w.constantWord(0), has);
}

void mlir::step::emitPairLeaf(const Words &w, const LeafWork &work,
                              Value routines, const PairTile &tile,
                              LeafBody emitBody) {
  auto call = [&](StringRef name, auto addStep) {
    Value words[] = {work.packed, work.panel, work.panelPitch,
                     work.begin,  work.end,   work.sums};
    func::FuncOp function = getSharedFunction(
        w, name, std::size(words), 0, [&](const Words &inner, ValueRange in) {
          LeafWork own{in[0], in[1], in[2], in[3], in[4], in[5]};
          emitBody(inner, own, [&](Value k, ValueRange before) {
            return addStep(inner, own, tile, k, before);
          });
        });
    func::CallOp::create(w.b, w.loc, function, words);
  };
  auto fuse = [&] {
    // Denormals count again where the result is rounded.
    callRoutine(w, {routines, "flush", {w.constantWord(1)}});
    call((kProductPrefix + "fused_pairs").str(), addFused);
    callRoutine(w, {routines, "flush", {w.constantWord(0)}});
  };
  if (tile.canHaveDots)
    w.branch(hasDots(w, routines), [&] { call(kDotsName, addDots); }, fuse);
  else
    fuse();
}
