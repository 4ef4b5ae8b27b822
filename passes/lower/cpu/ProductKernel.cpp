//===- ProductKernel.cpp - a product by one worker ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/ProductKernel.h"

#include "passes/lower/BodyEmitter.h"
#include "passes/lower/Combiners.h"
#include "passes/lower/cpu/Gather.h"
#include "passes/lower/cpu/Packing.h"
#include "passes/lower/cpu/PairLeaf.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::step;

/// Rows of a register tile, which are so many vectors: of 16 registers, and of
/// AVX-512's 32.
static constexpr int64_t kTileRows = 6, kWideTileRows = 12;
static_assert(STEPC_PACKED_ROWS % kWideTileRows == 0 &&
                  STEPC_PACKED_ROWS % kTileRows == 0,
              "what is packed of the left operand is whole tiles");

/// Panels of a register tile. A number of the left operand is a load of its own
/// in front of a dot product, but part of a fused multiply-add: so two panels
/// share it there, where there are registers for them.
static int64_t getTilePanels(const Product &product, bool avx512) {
  return product.inPairs && avx512 ? 2 : 1;
}

/// Of a panel, a row of which is a vector of the compute type.
static int64_t getPanelColumns(const Product &product) {
  return STEPC_PANEL_BYTES / getBytes(product.compute);
}

//===----------------------------------------------------------------------===//
// Register tiles
//===----------------------------------------------------------------------===//

namespace {
/// One tile of the result: what is packed of its rows and of its panels, and
/// where it goes. All values are words.
struct ResultTile {
  Value packed, panel;
  Value panelPitch;    // bytes from a panel to the next
  Value steps;         // of what is packed
  Value to, pitch;     // the first element's address; elements between rows
  Value rows, columns; // of the result from there on, which may be more
};

class TileEmitter {
public:
  TileEmitter(const Words &w, const Product &product, bool avx512)
      : numRows(avx512 ? kWideTileRows : kTileRows), w(w), product(product),
        avx512(avx512), lanes(getPanelColumns(product)),
        sums(emitStackBuffer(w, numRows * getColumns() * 8)) {}

  const int64_t numRows;

  int64_t getNumPanels() const { return getTilePanels(product, avx512); }
  int64_t getColumns() const { return getNumPanels() * lanes; }

  void emit(const ResultTile &tile) const;

private:
  void emitLeaf(const LeafWork &work) const;
  void storeRows(const ResultTile &tile) const;
  Value getRowSums(Value row) const {
    return w.add(sums, w.mul(row, w.constantWord(getColumns() * 8)));
  }

  const Words &w;
  const Product &product;
  bool avx512;
  int64_t lanes;
  /// The tile in f64, on the stack.
  Value sums;
};
} // namespace

/// The chains of one leaf, in registers, added to the tile's sums: row by row,
/// of each by panels. The first leaf is what it is.
static void emitChains(const Words &w, const LeafWork &work, VectorType type,
                       int64_t count, ChainStep addStep) {
  Value zero = arith::ConstantOp::create(w.b, w.loc, w.b.getZeroAttr(type));
  SmallVector<Value> chains(count, zero);
  chains = w.foldAll(w.toIndex(work.begin), w.toIndex(work.end), w.constant(1),
                     chains, addStep);
  Type f64 = w.b.getF64Type();
  int64_t lanes = type.getNumElements();
  Value isFirst = w.isZero(work.begin);
  for (auto [number, chain] : llvm::enumerate(chains)) {
    Value place = w.constant(int64_t(number) * lanes);
    Value wide = emitWidened(w, chain);
    Value old = emitLoad(w, f64, lanes, work.sums, place);
    Value sum = arith::AddFOp::create(w.b, w.loc, old, wide);
    emitStore(w, f64, lanes, w.select(isFirst, wide, sum), work.sums, place);
  }
}

void TileEmitter::emitLeaf(const LeafWork &work) const {
  auto type = VectorType::get({lanes}, product.compute);
  if (product.inPairs)
    return emitPairLeaf(
        w, work, product.routines, {numRows, getNumPanels(), avx512},
        [&](const Words &inner, const LeafWork &own, ChainStep addStep) {
          emitChains(inner, own, type, numRows * getNumPanels(), addStep);
        });
  emitChains(w, work, type, numRows, [&](Value k, ValueRange before) {
    Value vector = emitLoad(w, product.compute, lanes, work.panel,
                            w.mul(k, w.constant(lanes)));
    Value first = w.mul(k, w.constant(numRows));
    SmallVector<Value> next;
    for (auto [row, sum] : llvm::enumerate(before)) {
      Value number = emitLoad(w, product.compute, 0, work.packed,
                              w.add(first, w.constant(int64_t(row))));
      Value all = vector::BroadcastOp::create(w.b, w.loc, type, number);
      next.push_back(math::FmaOp::create(w.b, w.loc, all, vector, sum));
    }
    return next;
  });
}

/// Rounded, as many rows and columns as the result has.
void TileEmitter::storeRows(const ResultTile &tile) const {
  Type f64 = w.b.getF64Type(), stored = product.stored;
  auto narrow = [&](Value sum) -> Value {
    if (stored.isF64())
      return sum;
    Type type = stored;
    if (auto shaped = dyn_cast<VectorType>(sum.getType()))
      type = shaped.clone(stored);
    return arith::TruncFOp::create(w.b, w.loc, type, sum);
  };
  Value rows = w.min(tile.rows, w.constantWord(numRows));
  Value columns = w.min(tile.columns, w.constantWord(getColumns()));
  Value isWhole = w.isLess(w.constantWord(getColumns() - 1), columns);
  w.loop(w.constant(0), w.toIndex(rows), 1, [&](Value index) {
    Value row = w.toWord(index), from = getRowSums(row);
    Value to = w.add(tile.to, w.mul(w.mul(row, tile.pitch),
                                    w.constantWord(getBytes(stored))));
    w.branch(
        isWhole,
        [&] {
          for (int64_t first = 0; first < getColumns(); first += lanes) {
            Value place = w.constant(first);
            Value sum = emitLoad(w, f64, lanes, from, place);
            emitStore(w, stored, lanes, narrow(sum), to, place);
          }
        },
        [&] {
          w.loop(w.constant(0), w.toIndex(columns), 1, [&](Value column) {
            Value sum = emitLoad(w, f64, 0, from, column);
            emitStore(w, stored, 0, narrow(sum), to, column);
          });
        });
  });
}

void TileEmitter::emit(const ResultTile &tile) const {
  Value nothing = arith::ConstantOp::create(
      w.b, w.loc, w.b.getZeroAttr(VectorType::get({lanes}, w.b.getF64Type())));
  for (int64_t first = 0; first < numRows * getColumns(); first += lanes)
    emitStore(w, w.b.getF64Type(), lanes, nothing, sums, w.constant(first));
  int64_t leaf = product.inPairs ? STEPC_PRODUCT_LEAF / 2 : STEPC_PRODUCT_LEAF;
  w.loop(w.constant(0), w.toIndex(tile.steps), leaf, [&](Value index) {
    Value begin = w.toWord(index);
    Value end = w.min(tile.steps, w.add(begin, w.constantWord(leaf)));
    emitLeaf({tile.packed, tile.panel, tile.panelPitch, begin, end, sums});
  });
  storeRows(tile);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// The upper half of a symmetric result is the lower one, by blocks of rows: so
/// what is written of a row lies side by side, and what is read stays in the
/// first cache until the next column is.
static void emitMirror(const Words &w, const Product &product) {
  constexpr int64_t kRows = 16;
  Matrix own{product.result, product.stored, product.columns, Value()};
  w.loop(w.constant(0), w.toIndex(product.rows), kRows, [&](Value first) {
    Value begin = w.toWord(first);
    Value end = w.min(product.rows, w.add(begin, w.constantWord(kRows)));
    w.loop(w.constant(0), w.toIndex(end), 1, [&](Value index) {
      Value j = w.toWord(index);
      Value below = w.max(begin, w.add(j, w.constantWord(1)));
      w.loop(w.toIndex(below), w.toIndex(end), 1, [&](Value index) {
        Value i = w.toWord(index);
        Value from = w.add(w.mul(i, product.columns), j);
        Value to = w.add(w.mul(j, product.columns), i);
        emitStore(w, product.stored, 0,
                  loadElement(w, own, product.stored, w.toIndex(from)),
                  product.result, w.toIndex(to));
      });
    });
  });
}

/// The tiles of `STEPC_PACKED_ROWS` rows from `firstRow` on, by panels. Of a
/// symmetric result those that have something on or below the diagonal.
static void emitRows(const Words &w, const Product &product,
                     const TileEmitter &emitter, Value scratch,
                     Value firstRow) {
  int64_t lanes = getPanelColumns(product);
  Value storedBytes = w.constantWord(getBytes(product.stored));
  Value left =
      w.min(w.sub(product.rows, firstRow), w.constantWord(STEPC_PACKED_ROWS));
  Packing packing{
      product.lhs,     left,   product.depth, product.packed, product.compute,
      product.inPairs, scratch};
  packing.from.address =
      w.add(product.lhs.address,
            w.mul(w.mul(firstRow, product.lhs.rowStride),
                  w.constantWord(getBytes(product.lhs.storage))));
  emitPacking(w, packing, emitter.numRows);
  Value steps = packing.getSteps(w);
  Value lineBytes =
      w.mul(steps, w.constantWord(getBytes(packing.getStep(w.b))));
  Value tileBytes = w.mul(lineBytes, w.constantWord(emitter.numRows));
  Value panelBytes = w.mul(lineBytes, w.constantWord(lanes));
  Value panels = w.ceilDiv(product.columns, lanes);
  if (product.isSymmetric)
    panels = w.min(panels, w.ceilDiv(w.add(firstRow, left), lanes));
  // Behind these is nothing to store.
  Value columns = w.min(product.columns, w.mul(panels, w.constantWord(lanes)));
  int64_t together = emitter.getNumPanels();
  w.loop(w.constant(0), w.toIndex(panels), together, [&](Value panelIndex) {
    Value panel = w.toWord(panelIndex);
    // Behind the last one there is none: it is multiplied again, for nothing.
    Value isLast = w.isLess(panels, w.add(panel, w.constantWord(together)));
    Value pitch = w.select(isLast, w.constantWord(0), panelBytes);
    Value column = w.mul(panel, w.constantWord(lanes));
    // The first tile whose last row is not above the panel's first column.
    Value firstTile = w.constantWord(0);
    if (product.isSymmetric)
      firstTile = w.div(w.max(w.sub(column, firstRow), firstTile),
                        w.constantWord(emitter.numRows));
    Value tiles = w.ceilDiv(left, emitter.numRows);
    w.loop(w.toIndex(firstTile), w.toIndex(tiles), 1, [&](Value tileIndex) {
      Value tile = w.toWord(tileIndex);
      Value row = w.mul(tile, w.constantWord(emitter.numRows));
      Value element =
          w.add(w.mul(w.add(firstRow, row), product.columns), column);
      emitter.emit({w.add(product.packed, w.mul(tile, tileBytes)),
                    w.add(product.panels, w.mul(panel, panelBytes)), pitch,
                    steps, w.add(product.result, w.mul(element, storedBytes)),
                    product.columns, w.sub(left, row), w.sub(columns, column)});
    });
  });
}

void mlir::step::emitPackedProduct(const Words &w, const Product &product,
                                   bool avx512) {
  // Memory on the stack is taken once.
  TileEmitter emitter(w, product, avx512);
  Value scratch;
  if (product.inPairs)
    scratch = emitStackBuffer(w, kPairScratchBytes);
  // Lines of the right operand are its columns.
  Packing packing{product.rhs,    product.columns, product.depth,
                  product.panels, product.compute, product.inPairs,
                  scratch};
  std::swap(packing.from.rowStride, packing.from.columnStride);
  emitPacking(w, packing, getPanelColumns(product));
  w.loop(w.constant(0), w.toIndex(product.rows), STEPC_PACKED_ROWS,
         [&](Value row) {
           emitRows(w, product, emitter, scratch, w.toWord(row));
         });
  if (product.isSymmetric)
    emitMirror(w, product);
}
