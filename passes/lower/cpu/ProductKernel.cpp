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
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::step;

/// Of a panel, a row of which is a vector of the compute type.
static int64_t getPanelColumns(Type compute) {
  return STEPC_PANEL_BYTES / getBytes(compute);
}

//===----------------------------------------------------------------------===//
// Packing
//===----------------------------------------------------------------------===//

/// What is packed: `count` lines of `depth` numbers, in groups of `width`
/// lines. Number k of line j lies at j * lineStride + k * depthStride.
namespace {
struct Packing {
  Matrix from; // rowStride: of lines; columnStride: along the depth
  Value count, depth;
  Value to;
};
} // namespace

/// How many numbers of a line are packed before the next line's: those of a
/// whole group stay in the first cache meanwhile.
static constexpr int64_t kPackedDepth = 64;

namespace {
/// Numbers from `begin` to `end`, indices, of a line whose first lies at
/// `first`; the group's own begin at `to`.
struct Stretch {
  Value begin, end, first, to;
};
} // namespace

/// A stretch of a line, or zeros where the line is not `isThere`.
static void packLine(const Words &w, const Packing &packing, Type compute,
                     const Stretch &stretch, Value isThere, int64_t width) {
  Value zero =
      arith::ConstantOp::create(w.b, w.loc, w.b.getFloatAttr(compute, 0.0));
  auto emitLoop = [&](function_ref<Value(Value)> emitElement) {
    w.loop(stretch.begin, stretch.end, 1, [&](Value k) {
      emitStore(w, compute, 0, emitElement(w.toWord(k)), stretch.to,
                arith::MulIOp::create(w.b, w.loc, k, w.constant(width)));
    });
  };
  w.branch(
      isThere,
      [&] {
        emitLoop([&](Value k) {
          Value index =
              w.add(stretch.first, w.mul(k, packing.from.columnStride));
          return loadElement(w, packing.from, compute, w.toIndex(index));
        });
      },
      [&] { emitLoop([&](Value) { return zero; }); });
}

/// A whole group whose lines lie side by side: vectors are copied.
static void packVectors(const Words &w, const Packing &packing, Type compute,
                        Value first, Value to, int64_t width) {
  w.loop(w.constant(0), w.toIndex(packing.depth), 1, [&](Value k) {
    Value from = w.add(first, w.mul(w.toWord(k), packing.from.columnStride));
    Value vector = emitLoad(w, packing.from.storage, width,
                            packing.from.address, w.toIndex(from));
    emitStore(w, compute, width, widenElements(w, vector, compute), to,
              arith::MulIOp::create(w.b, w.loc, k, w.constant(width)));
  });
}

/// A group from `line` on, line by line, by stretches.
static void packLines(const Words &w, const Packing &packing, Type compute,
                      Value line, Value to, int64_t width) {
  Value bytes = w.constantWord(getBytes(compute));
  Value depth = w.toIndex(packing.depth);
  w.loop(w.constant(0), depth, kPackedDepth, [&](Value begin) {
    Value end = arith::MinSIOp::create(w.b, w.loc, depth,
                                       w.add(begin, w.constant(kPackedDepth)));
    w.loop(w.constant(0), w.constant(width), 1, [&](Value index) {
      Value lane = w.toWord(index), own = w.add(line, lane);
      Stretch stretch{begin, end, w.mul(own, packing.from.rowStride),
                      w.add(to, w.mul(lane, bytes))};
      packLine(w, packing, compute, stretch, w.isLess(own, packing.count),
               width);
    });
  });
}

static void emitPacking(const Words &w, const Packing &packing, Type compute,
                        int64_t width) {
  Value groups = w.ceilDiv(packing.count, width);
  Value size = w.constantWord(width);
  Value groupBytes =
      w.mul(w.mul(packing.depth, size), w.constantWord(getBytes(compute)));
  w.loop(w.constant(0), w.toIndex(groups), 1, [&](Value index) {
    Value group = w.toWord(index);
    Value line = w.mul(group, size);
    Value to = w.add(packing.to, w.mul(group, groupBytes));
    Value isWhole =
        w.isLess(w.add(line, w.constantWord(width - 1)), packing.count);
    Value isDense =
        arith::CmpIOp::create(w.b, w.loc, arith::CmpIPredicate::eq,
                              packing.from.rowStride, w.constantWord(1));
    w.branch(
        w.both(isWhole, isDense),
        [&] {
          packVectors(w, packing, compute, w.mul(line, packing.from.rowStride),
                      to, width);
        },
        [&] { packLines(w, packing, compute, line, to, width); });
  });
}

//===----------------------------------------------------------------------===//
// Register tiles
//===----------------------------------------------------------------------===//

namespace {
/// One tile of the result: what is packed of its rows and of its panel, and
/// where it goes. All values are words.
struct ResultTile {
  Value packed, panel;
  Value depth;
  Value to, pitch;     // the first element's address; elements between rows
  Value rows, columns; // of the result from there on, which may be more
};

class TileEmitter {
public:
  TileEmitter(const Words &w, const Product &product, int64_t numRows)
      : numRows(numRows), w(w), compute(product.compute),
        stored(product.stored), lanes(getPanelColumns(compute)),
        sums(emitStackBuffer(w, numRows * lanes * 8)) {}

  const int64_t numRows;

  void emit(const ResultTile &tile) const;

private:
  SmallVector<Value> emitLeaf(const ResultTile &tile, Value begin,
                              Value end) const;
  void addLeaf(ValueRange leaf, Value isFirst) const;
  void storeRows(const ResultTile &tile) const;
  Value getRowSums(Value row) const {
    return w.add(sums, w.mul(row, w.constantWord(lanes * 8)));
  }

  const Words &w;
  Type compute, stored;
  int64_t lanes;
  /// The tile in f64, on the stack.
  Value sums;
};
} // namespace

/// The chains of one leaf, in registers.
SmallVector<Value> TileEmitter::emitLeaf(const ResultTile &tile, Value begin,
                                         Value end) const {
  auto type = VectorType::get({lanes}, compute);
  Value zero = arith::ConstantOp::create(w.b, w.loc, w.b.getZeroAttr(type));
  SmallVector<Value> chains(numRows, zero);
  auto multiply = [&](Value k, ValueRange before) {
    Value vector =
        emitLoad(w, compute, lanes, tile.panel, w.mul(k, w.constant(lanes)));
    Value first = w.mul(k, w.constant(numRows));
    SmallVector<Value> next;
    for (auto [row, sum] : llvm::enumerate(before)) {
      Value number = emitLoad(w, compute, 0, tile.packed,
                              w.add(first, w.constant(int64_t(row))));
      Value all = vector::BroadcastOp::create(w.b, w.loc, type, number);
      next.push_back(math::FmaOp::create(w.b, w.loc, all, vector, sum));
    }
    return next;
  };
  return w.foldAll(begin, end, w.constant(1), chains, multiply);
}

/// The first leaf is what it is.
void TileEmitter::addLeaf(ValueRange leaf, Value isFirst) const {
  Type f64 = w.b.getF64Type();
  for (auto [row, chain] : llvm::enumerate(leaf)) {
    Value address = getRowSums(w.constantWord(int64_t(row)));
    Value wide = emitWidened(w, chain);
    Value old = emitLoad(w, f64, lanes, address, w.constant(0));
    Value sum = arith::AddFOp::create(w.b, w.loc, old, wide);
    emitStore(w, f64, lanes, w.select(isFirst, wide, sum), address,
              w.constant(0));
  }
}

/// Rounded, as many rows and columns as the result has.
void TileEmitter::storeRows(const ResultTile &tile) const {
  Type f64 = w.b.getF64Type();
  auto narrow = [&](Value sum) -> Value {
    if (stored.isF64())
      return sum;
    Type type = stored;
    if (auto shaped = dyn_cast<VectorType>(sum.getType()))
      type = shaped.clone(stored);
    return arith::TruncFOp::create(w.b, w.loc, type, sum);
  };
  Value rows = w.min(tile.rows, w.constantWord(numRows));
  Value columns = w.min(tile.columns, w.constantWord(lanes));
  Value isWhole = w.isLess(w.constantWord(lanes - 1), columns);
  w.loop(w.constant(0), w.toIndex(rows), 1, [&](Value index) {
    Value row = w.toWord(index), from = getRowSums(row);
    Value to = w.add(tile.to, w.mul(w.mul(row, tile.pitch),
                                    w.constantWord(getBytes(stored))));
    w.branch(
        isWhole,
        [&] {
          Value sum = emitLoad(w, f64, lanes, from, w.constant(0));
          emitStore(w, stored, lanes, narrow(sum), to, w.constant(0));
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
  for (int64_t row = 0; row < numRows; ++row)
    emitStore(w, w.b.getF64Type(), lanes, nothing,
              getRowSums(w.constantWord(row)), w.constant(0));
  w.loop(w.constant(0), w.toIndex(tile.depth), STEPC_PRODUCT_LEAF,
         [&](Value begin) {
           Value depth = w.toIndex(tile.depth);
           Value end = arith::MinSIOp::create(
               w.b, w.loc, depth, w.add(begin, w.constant(STEPC_PRODUCT_LEAF)));
           Value isFirst = arith::CmpIOp::create(
               w.b, w.loc, arith::CmpIPredicate::eq, begin, w.constant(0));
           addLeaf(emitLeaf(tile, begin, end), isFirst);
         });
  storeRows(tile);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// The upper half of a symmetric result is the lower one.
static void emitMirror(const Words &w, const Product &product) {
  Matrix own{product.result, product.stored, product.columns, Value()};
  w.loop(w.constant(0), w.toIndex(product.rows), 1, [&](Value i) {
    Value row = w.mul(w.toWord(i), product.columns);
    w.loop(w.constant(0), i, 1, [&](Value j) {
      Value from = w.add(row, w.toWord(j));
      Value to = w.add(w.mul(w.toWord(j), product.columns), w.toWord(i));
      emitStore(w, product.stored, 0,
                loadElement(w, own, product.stored, w.toIndex(from)),
                product.result, w.toIndex(to));
    });
  });
}

/// The tiles of `STEPC_PACKED_ROWS` rows from `firstRow` on, by panels. Of a
/// symmetric result those that have something on or below the diagonal.
static void emitRows(const Words &w, const Product &product,
                     const TileEmitter &emitter, Value firstRow) {
  int64_t lanes = getPanelColumns(product.compute);
  Value bytes = w.constantWord(getBytes(product.compute));
  Value storedBytes = w.constantWord(getBytes(product.stored));
  Value left =
      w.min(w.sub(product.rows, firstRow), w.constantWord(STEPC_PACKED_ROWS));
  Packing packing{product.lhs, left, product.depth, product.packed};
  packing.from.address =
      w.add(product.lhs.address,
            w.mul(w.mul(firstRow, product.lhs.rowStride),
                  w.constantWord(getBytes(product.lhs.storage))));
  emitPacking(w, packing, product.compute, emitter.numRows);
  Value tileBytes =
      w.mul(w.mul(product.depth, w.constantWord(emitter.numRows)), bytes);
  Value panelBytes = w.mul(w.mul(product.depth, w.constantWord(lanes)), bytes);
  Value panels = w.ceilDiv(product.columns, lanes);
  if (product.isSymmetric)
    panels = w.min(panels, w.ceilDiv(w.add(firstRow, left), lanes));
  w.loop(w.constant(0), w.toIndex(panels), 1, [&](Value panelIndex) {
    Value panel = w.toWord(panelIndex);
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
      emitter.emit(
          {w.add(product.packed, w.mul(tile, tileBytes)),
           w.add(product.panels, w.mul(panel, panelBytes)), product.depth,
           w.add(product.result, w.mul(element, storedBytes)), product.columns,
           w.sub(left, row), w.sub(product.columns, column)});
    });
  });
}

void mlir::step::emitPackedProduct(const Words &w, const Product &product,
                                   int64_t tileRows) {
  // Lines of the right operand are its columns.
  Packing packing{product.rhs, product.columns, product.depth, product.panels};
  std::swap(packing.from.rowStride, packing.from.columnStride);
  emitPacking(w, packing, product.compute, getPanelColumns(product.compute));
  // Its memory on the stack is taken once.
  TileEmitter emitter(w, product, tileRows);
  w.loop(w.constant(0), w.toIndex(product.rows), STEPC_PACKED_ROWS,
         [&](Value row) { emitRows(w, product, emitter, w.toWord(row)); });
  if (product.isSymmetric)
    emitMirror(w, product);
}
