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
/// One tile of the result: what is packed of its rows and of its panels, and
/// where it goes. All values are words.
struct ResultTile {
  Value packed;
  SmallVector<Value, 2> panels;
  Value depth;
  Value to, pitch;     // the first element's address; elements between rows
  Value rows, columns; // of the result from there on, which may be more
};

class TileEmitter {
public:
  TileEmitter(const Words &w, const Product &product, int64_t numRows,
              int64_t numPanels)
      : numRows(numRows), numPanels(numPanels), w(w), compute(product.compute),
        stored(product.stored), lanes(getPanelColumns(compute)),
        sums(emitStackBuffer(w, numRows * numPanels * lanes * 8)) {}

  const int64_t numRows, numPanels;

  void emit(const ResultTile &tile) const;

private:
  SmallVector<Value> emitLeaf(const ResultTile &tile, Value begin,
                              Value end) const;
  void addLeaf(ValueRange leaf, Value isFirst) const;
  void storeRows(const ResultTile &tile) const;
  Value getRowSums(Value row) const {
    return w.add(sums, w.mul(row, w.constantWord(numPanels * lanes * 8)));
  }
  Value getSums(int64_t row, int64_t panel) const {
    return w.add(sums, w.constantWord((row * numPanels + panel) * lanes * 8));
  }

  const Words &w;
  Type compute, stored;
  int64_t lanes;
  /// The tile in f64, on the stack.
  Value sums;
};
} // namespace

/// The chains of one leaf, in registers: panel by panel of each row.
SmallVector<Value> TileEmitter::emitLeaf(const ResultTile &tile, Value begin,
                                         Value end) const {
  auto type = VectorType::get({lanes}, compute);
  Value zero = arith::ConstantOp::create(w.b, w.loc, w.b.getZeroAttr(type));
  SmallVector<Value> chains(numRows * numPanels, zero);
  auto multiply = [&](Value k, ValueRange before) {
    Value column = w.mul(k, w.constant(lanes));
    SmallVector<Value> vectors =
        llvm::map_to_vector(tile.panels, [&](Value panel) -> Value {
          return emitLoad(w, compute, lanes, panel, column);
        });
    Value first = w.mul(k, w.constant(numRows));
    SmallVector<Value> next;
    for (int64_t row = 0; row < numRows; ++row) {
      Value number =
          emitLoad(w, compute, 0, tile.packed, w.add(first, w.constant(row)));
      Value all = vector::BroadcastOp::create(w.b, w.loc, type, number);
      for (Value vector : vectors)
        next.push_back(
            math::FmaOp::create(w.b, w.loc, all, vector, before[next.size()]));
    }
    return next;
  };
  return w.foldAll(begin, end, w.constant(1), chains, multiply);
}

/// The first leaf is what it is.
void TileEmitter::addLeaf(ValueRange leaf, Value isFirst) const {
  Type f64 = w.b.getF64Type();
  for (auto [number, chain] : llvm::enumerate(leaf)) {
    Value address =
        getSums(int64_t(number) / numPanels, int64_t(number) % numPanels);
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
  int64_t width = numPanels * lanes;
  Value columns = w.min(tile.columns, w.constantWord(width));
  Value isWhole = w.isLess(w.constantWord(width - 1), columns);
  w.loop(w.constant(0), w.toIndex(rows), 1, [&](Value index) {
    Value row = w.toWord(index), from = getRowSums(row);
    Value to = w.add(tile.to, w.mul(w.mul(row, tile.pitch),
                                    w.constantWord(getBytes(stored))));
    w.branch(
        isWhole,
        [&] {
          for (int64_t column = 0; column < width; column += lanes) {
            Value at = w.constant(column);
            emitStore(w, stored, lanes,
                      narrow(emitLoad(w, f64, lanes, from, at)), to, at);
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
  for (int64_t row = 0; row < numRows; ++row)
    for (int64_t panel = 0; panel < numPanels; ++panel)
      emitStore(w, w.b.getF64Type(), lanes, nothing, getSums(row, panel),
                w.constant(0));
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

namespace {
/// Rows of the result whose lines of the left operand are packed: `count` from
/// `first` on. Words.
struct PackedRows {
  Value first, count;
};
} // namespace

/// The tiles of such rows by panels from `begin` to `end`, words. Of a
/// symmetric result those that have something on or below the diagonal.
static void emitTiles(const Words &w, const Product &product,
                      const TileEmitter &emitter, const PackedRows &rows,
                      Value begin, Value end) {
  int64_t lanes = getPanelColumns(product.compute);
  Value bytes = w.constantWord(getBytes(product.compute));
  Value storedBytes = w.constantWord(getBytes(product.stored));
  Value tileBytes =
      w.mul(w.mul(product.depth, w.constantWord(emitter.numRows)), bytes);
  Value panelBytes = w.mul(w.mul(product.depth, w.constantWord(lanes)), bytes);
  w.loop(w.toIndex(begin), w.toIndex(end), emitter.numPanels, [&](Value index) {
    Value panel = w.toWord(index);
    Value column = w.mul(panel, w.constantWord(lanes));
    SmallVector<Value, 2> panels{
        w.add(product.panels, w.mul(panel, panelBytes))};
    while (int64_t(panels.size()) < emitter.numPanels)
      panels.push_back(w.add(panels.back(), panelBytes));
    // The first tile whose last row is not above the panel's first column.
    Value firstTile = w.constantWord(0);
    if (product.isSymmetric)
      firstTile = w.div(w.max(w.sub(column, rows.first), firstTile),
                        w.constantWord(emitter.numRows));
    Value tiles = w.ceilDiv(rows.count, emitter.numRows);
    w.loop(w.toIndex(firstTile), w.toIndex(tiles), 1, [&](Value tileIndex) {
      Value tile = w.toWord(tileIndex);
      Value row = w.mul(tile, w.constantWord(emitter.numRows));
      Value element =
          w.add(w.mul(w.add(rows.first, row), product.columns), column);
      emitter.emit(
          {w.add(product.packed, w.mul(tile, tileBytes)), panels, product.depth,
           w.add(product.result, w.mul(element, storedBytes)), product.columns,
           w.sub(rows.count, row), w.sub(product.columns, column)});
    });
  });
}

/// Of a register tile. Where 32 registers hold two panels, each number of the
/// left operand is loaded once for both: with one panel a processor loads more
/// often than it multiplies.
static int64_t getTilePanels(int64_t tileRows) { return tileRows < 12 ? 1 : 2; }

/// The rows of the result from `firstRow` on, as many as are packed together.
/// `emitters`: of tiles of several panels, if there are such, and of one, for
/// what is left.
static void emitRows(const Words &w, const Product &product,
                     ArrayRef<TileEmitter> emitters, Value firstRow) {
  PackedRows rows{firstRow, w.min(w.sub(product.rows, firstRow),
                                  w.constantWord(STEPC_PACKED_ROWS))};
  Packing packing{product.lhs, rows.count, product.depth, product.packed};
  packing.from.address =
      w.add(product.lhs.address,
            w.mul(w.mul(firstRow, product.lhs.rowStride),
                  w.constantWord(getBytes(product.lhs.storage))));
  emitPacking(w, packing, product.compute, emitters.front().numRows);
  int64_t lanes = getPanelColumns(product.compute);
  Value panels = w.ceilDiv(product.columns, lanes);
  if (product.isSymmetric)
    panels = w.min(panels, w.ceilDiv(w.add(firstRow, rows.count), lanes));
  Value begin = w.constantWord(0);
  for (const TileEmitter &emitter : emitters) {
    Value unit = w.constantWord(emitter.numPanels);
    Value end = w.mul(w.div(panels, unit), unit);
    emitTiles(w, product, emitter, rows, begin, end);
    begin = end;
  }
}

void mlir::step::emitPackedProduct(const Words &w, const Product &product,
                                   int64_t tileRows) {
  // Lines of the right operand are its columns.
  Packing packing{product.rhs, product.columns, product.depth, product.panels};
  std::swap(packing.from.rowStride, packing.from.columnStride);
  emitPacking(w, packing, product.compute, getPanelColumns(product.compute));
  // Their memory on the stack is taken once.
  SmallVector<TileEmitter, 2> emitters;
  for (int64_t panels = getTilePanels(tileRows); panels > 0; --panels)
    emitters.emplace_back(w, product, tileRows, panels);
  w.loop(w.constant(0), w.toIndex(product.rows), STEPC_PACKED_ROWS,
         [&](Value row) { emitRows(w, product, emitters, w.toWord(row)); });
  if (product.isSymmetric)
    emitMirror(w, product);
}
