//===- TiledProduct.cpp - a product by all blocks of a grid ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block makes a tile of the result: 16 by 16 threads, of which each has 8 by
// 8 elements in registers, or 4 by 4 where they or their sums take more room.
// Of both operands 8 numbers of the contracted dim at a time are in shared
// memory, twice: while one half is multiplied the next numbers are under way to
// registers, and from there to the other half. An element is one chain of fused
// multiply-adds over the leaf, as in every engine. Leaves are added in f64; of
// several, the sums wait in the block's scratch memory, as registers have no
// room for them.
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/BlockProduct.h"

#include "passes/lower/BodyEmitter.h"
#include "passes/lower/Combiners.h"
#include "passes/lower/cuda/BlockTree.h"
#include "passes/lower/cuda/ElementKernel.h"
#include "passes/lower/cuda/GridKernel.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::step;

/// Threads beside each other in a block, both ways, numbers of the contracted
/// dim in shared memory, and elements of a vector there.
static constexpr int64_t kSide = 16, kDepth = 8, kVector = 4;
/// So that threads that write rows write to different banks.
static constexpr int64_t kBankPadding = 4;

static_assert(kSide * kSide == STEPC_BLOCK_THREADS &&
                  kSide * kSide * 8 * 8 * sizeof(double) == STEPC_BLOCK_SCRATCH,
              "what the sums of the largest tile take");

int64_t mlir::step::getTileSide(const Product &product) {
  return kSide * (product.compute.isF32() && !product.inPairs ? 8 : 4);
}

namespace {
/// One operand as the block brings it: `outer` numbers rows of the left one,
/// columns of the right one.
struct Side {
  const Matrix &matrix;
  Value outers;                   // how many there are, a word
  Value outerStride, depthStride; // words
  bool isAlongDepth; // whether numbers of the contracted dim lie side by side
  Value shared;
  Value isAligned;
};

class TiledProduct {
public:
  TiledProduct(const Words &w, const Product &product)
      : w(w), product(product), side(getTileSide(product)), own(side / kSide),
        groups(own / kVector), pitch(side + kBankPadding),
        width(side * kDepth / kBlockThreads) {}

  void emit();

private:
  using Values = SmallVector<Value>;

  Value getShared(StringRef name);
  Side getSide(const Matrix &matrix, bool isLeft);
  Value emitLoad(const Side &from, Value first, Value depth);
  Value emitElement(const Side &from, Value outer, Value depth);
  std::pair<Value, Value> getLoaded(const Side &from) const;
  void emitStage(const Side &to, Value half, Value vector);
  Values emitStep(Value half, Value k, ValueRange sums);
  Values readShared(const Side &from, Value thread, Value half, Value k);
  void emitTile();
  Values emitLeaf(Value begin, Value end);
  void emitSums(ValueRange leaf, Value isFirst, Value isLast);
  void store(function_ref<Value(size_t)> getResult);
  void storeRow(Value row, Value column, ArrayRef<Value> results);
  void storeElement(Value row, Value column, Value result);
  Value getPlace(Value thread, int64_t k) const;
  std::pair<Value, Value> locate(Value number) const;
  Value zero() const {
    return arith::ConstantOp::create(w.b, w.loc,
                                     w.b.getFloatAttr(product.compute, 0.0));
  }

  const Words &w;
  const Product &product;
  /// Of a tile: elements of a side, those of a thread, in so many vectors;
  /// elements from row to row in shared memory; and how many a thread brings.
  int64_t side, own, groups, pitch, width;
  std::optional<Side> left, right;
  Value thread, threadRow, threadColumn; // indices
  Value firstRow, firstColumn;           // words
};
} // namespace

Value mlir::step::countProductTiles(const Words &w, const Product &product) {
  int64_t side = getTileSide(product);
  Value rows = w.ceilDiv(product.rows, side);
  if (!product.isSymmetric)
    return w.mul(rows, w.ceilDiv(product.columns, side));
  return w.div(w.mul(rows, w.add(rows, w.constantWord(1))), w.constantWord(2));
}

/// Of both halves of an operand.
Value TiledProduct::getShared(StringRef name) {
  int64_t count = 2 * kDepth * pitch;
  std::string full = (name + "_" + Twine(count) + "_f" +
                      Twine(product.compute.getIntOrFloatBitWidth()))
                         .str();
  auto space = gpu::AddressSpaceAttr::get(w.b.getContext(),
                                          gpu::AddressSpace::Workgroup);
  auto memory = MemRefType::get({count}, product.compute, AffineMap(), space);
  Operation *module = SymbolTable::getNearestSymbolTable(
      w.b.getInsertionBlock()->getParentOp());
  if (!SymbolTable::lookupSymbolIn(module, full)) {
    OpBuilder::InsertionGuard guard(w.b);
    w.b.setInsertionPointToStart(&module->getRegion(0).front());
    memref::GlobalOp::create(w.b, module->getLoc(), full,
                             w.b.getStringAttr("private"), memory,
                             w.b.getUnitAttr(), /*constant=*/false,
                             w.b.getI64IntegerAttr(kAccessBytes));
  }
  return memref::GetGlobalOp::create(w.b, w.loc, memory, full);
}

Side TiledProduct::getSide(const Matrix &matrix, bool isLeft) {
  bool isAlongDepth = isLeft != matrix.isTransposed;
  Side in{matrix,
          isLeft ? product.rows : product.columns,
          isLeft ? matrix.rowStride : matrix.columnStride,
          isLeft ? matrix.columnStride : matrix.rowStride,
          isAlongDepth,
          getShared(isLeft ? "product_left" : "product_right"),
          Value()};
  int64_t bytes = getBytes(matrix.storage);
  Value pitchBytes = w.mul(isAlongDepth ? in.outerStride : in.depthStride,
                           w.constantWord(bytes));
  Value bits = w.either(matrix.address, pitchBytes);
  in.isAligned = w.isZero(w.both(bits, w.constantWord(width * bytes - 1)));
  return in;
}

/// Which numbers a thread brings: the first of `width`, of the outer dim and of
/// the contracted one, in the tile. Words.
std::pair<Value, Value> TiledProduct::getLoaded(const Side &from) const {
  Value number = w.toWord(thread);
  int64_t line = (from.isAlongDepth ? kDepth : side) / width;
  Value across = w.div(number, w.constantWord(line));
  Value along =
      w.mul(w.rem(number, w.constantWord(line)), w.constantWord(width));
  return from.isAlongDepth ? std::pair(across, along)
                           : std::pair(along, across);
}

/// A number of the operand, or 0 behind its ends.
Value TiledProduct::emitElement(const Side &from, Value outer, Value depth) {
  Value isThere =
      w.both(w.isLess(outer, from.outers), w.isLess(depth, product.depth));
  return w.choose(
      product.compute, isThere,
      [&] {
        Value place = w.add(w.mul(outer, from.outerStride),
                            w.mul(depth, from.depthStride));
        return loadElement(w, from.matrix, product.compute, w.toIndex(place));
      },
      [&] { return zero(); });
}

/// What a thread brings of the numbers from `depth` on of the tile that begins
/// at `first`: a vector.
Value TiledProduct::emitLoad(const Side &from, Value first, Value depth) {
  auto [outer, along] = getLoaded(from);
  outer = w.add(first, outer);
  Value k = w.add(depth, along), last = w.constantWord(width - 1);
  Value isWhole = w.both(
      w.isLess(from.isAlongDepth ? outer : w.add(outer, last), from.outers),
      w.isLess(from.isAlongDepth ? w.add(k, last) : k, product.depth));
  auto type = VectorType::get({width}, product.compute);
  auto loadVector = [&]() -> Value {
    Value place =
        w.add(w.mul(outer, from.outerStride), w.mul(k, from.depthStride));
    Value loaded = mlir::step::emitLoad(
        w, from.matrix.storage, width, from.matrix.address, w.toIndex(place),
        {false, llvm::Align(width * getBytes(from.matrix.storage))});
    return convertElements(w, loaded, product.compute);
  };
  auto loadElements = [&]() -> Value {
    Values elements;
    for (int64_t e = 0; e < width; ++e) {
      Value step = w.constantWord(e);
      elements.push_back(
          emitElement(from, from.isAlongDepth ? outer : w.add(outer, step),
                      from.isAlongDepth ? w.add(k, step) : k));
    }
    return vector::FromElementsOp::create(w.b, w.loc, type, elements);
  };
  return w.choose(type, w.both(from.isAligned, isWhole), loadVector,
                  loadElements);
}

/// Puts it into a half of shared memory (an index).
void TiledProduct::emitStage(const Side &to, Value half, Value vector) {
  auto [outer, depth] = getLoaded(to);
  Values elements;
  if (to.isAlongDepth || product.inPairs)
    for (int64_t e = 0; e < width; ++e) {
      Value element = vector::ExtractOp::create(w.b, w.loc, vector, e);
      elements.push_back(product.inPairs ? toFactor(w, element) : element);
    }
  Value begin =
      w.add(w.mul(half, w.constant(kDepth * pitch)),
            w.toIndex(w.add(w.mul(depth, w.constantWord(pitch)), outer)));
  if (elements.empty()) {
    vector::StoreOp::create(
        w.b, w.loc, vector, to.shared, ValueRange{begin},
        /*nontemporal=*/false,
        llvm::MaybeAlign(std::min<int64_t>(width * getBytes(product.compute),
                                           kAccessBytes)));
    return;
  }
  int64_t step = to.isAlongDepth ? pitch : 1;
  for (auto [e, element] : llvm::enumerate(elements))
    w.store(element, to.shared, w.add(begin, w.constant(int64_t(e) * step)));
}

/// Element number `k` of a thread's in a side of the tile, an index.
Value TiledProduct::getPlace(Value number, int64_t k) const {
  Value first = w.mul(number, w.constant(kVector));
  return w.add(first, w.constant(k / kVector * kSide * kVector + k % kVector));
}

/// What a thread needs of number `k` of a half.
SmallVector<Value> TiledProduct::readShared(const Side &from, Value number,
                                            Value half, Value k) {
  auto type = VectorType::get({kVector}, product.compute);
  Value line = w.add(w.mul(half, w.constant(kDepth)), k);
  Value begin = w.mul(line, w.constant(pitch));
  Values elements;
  for (int64_t group = 0; group < groups; ++group) {
    Value index = w.add(begin, getPlace(number, group * kVector));
    Value vector = vector::LoadOp::create(
        w.b, w.loc, type, from.shared, ValueRange{index},
        /*nontemporal=*/false, llvm::MaybeAlign(kAccessBytes));
    for (int64_t e = 0; e < kVector; ++e)
      elements.push_back(vector::ExtractOp::create(w.b, w.loc, vector, e));
  }
  return elements;
}

/// Number `k` of a half (indices) on top of the sums; of a pair its second
/// first.
SmallVector<Value> TiledProduct::emitStep(Value half, Value k,
                                          ValueRange sums) {
  Values next(sums);
  auto add = [&](Value number) {
    Values rows = readShared(*left, threadRow, half, number);
    Values columns = readShared(*right, threadColumn, half, number);
    for (auto [place, sum] : llvm::enumerate(next)) {
      Value x = rows[place / own], y = columns[place % own];
      sum = product.inPairs ? addFactors(w, x, y, sum)
                            : Value(math::FmaOp::create(w.b, w.loc, x, y, sum));
    }
  };
  if (product.inPairs)
    add(w.add(k, w.constant(1)));
  add(k);
  return next;
}

/// One chain for each element over the numbers from `begin` to `end` (words).
SmallVector<Value> TiledProduct::emitLeaf(Value begin, Value end) {
  Value none = w.constant(0);
  auto bring = [&](Value depth, Value half) {
    Value x = emitLoad(*left, firstRow, depth);
    Value y = emitLoad(*right, firstColumn, depth);
    emitStage(*left, half, x);
    emitStage(*right, half, y);
  };
  emitBarrier(w);
  bring(begin, none);
  emitBarrier(w);
  Value count = w.toIndex(w.sub(end, begin));
  Value whole = w.div(count, w.constant(kDepth));
  int64_t step = product.inPairs ? 2 : 1;
  Values sums =
      w.foldAll(none, whole, w.constant(1), Values(own * own, zero()),
                [&](Value number, ValueRange before) {
                  Value half = w.rem(number, w.constant(2));
                  Value depth =
                      w.add(begin, w.toWord(w.mul(w.add(number, w.constant(1)),
                                                  w.constant(kDepth))));
                  Value x = emitLoad(*left, firstRow, depth);
                  Value y = emitLoad(*right, firstColumn, depth);
                  Values now(before);
                  for (int64_t k = 0; k < kDepth; k += step)
                    now = emitStep(half, w.constant(k), now);
                  Value other = w.sub(w.constant(1), half);
                  emitStage(*left, other, x);
                  emitStage(*right, other, y);
                  emitBarrier(w);
                  return now;
                });
  // What is left of the last leaf is there already.
  Value half = w.rem(whole, w.constant(2));
  return w.foldAll(
      none, w.rem(count, w.constant(kDepth)), w.constant(step), sums,
      [&](Value k, ValueRange before) { return emitStep(half, k, before); });
}

/// An element of the result, narrowed; where half of it is made the other half
/// is the same.
void TiledProduct::storeElement(Value row, Value column, Value result) {
  Value isThere =
      w.both(w.isLess(row, product.rows), w.isLess(column, product.columns));
  if (product.isSymmetric)
    isThere = w.both(isThere, w.isLess(column, w.add(row, w.constantWord(1))));
  w.when(isThere, [&] {
    auto put = [&](Value i, Value j) {
      Value place = w.add(w.mul(i, product.columns), j);
      emitStore(w, product.stored, 0, result, product.result, w.toIndex(place));
    };
    put(row, column);
    if (product.isSymmetric)
      put(column, row);
  });
}

/// Elements side by side: one access, where all are there and lie so.
void TiledProduct::storeRow(Value row, Value column, ArrayRef<Value> results) {
  auto storeAll = [&] {
    for (auto [e, result] : llvm::enumerate(results))
      storeElement(row, w.add(column, w.constantWord(int64_t(e))), result);
  };
  int64_t bytes = getBytes(product.stored);
  if (product.isSymmetric || bytes * kVector > kAccessBytes)
    return storeAll();
  Value bits =
      w.either(product.result, w.mul(product.columns, w.constantWord(bytes)));
  Value isWhole =
      w.both(w.both(w.isLess(row, product.rows),
                    w.isLess(w.add(column, w.constantWord(kVector - 1)),
                             product.columns)),
             w.isZero(w.both(bits, w.constantWord(kVector * bytes - 1))));
  auto type = VectorType::get({kVector}, product.stored);
  w.branch(
      isWhole,
      [&] {
        Value place = w.add(w.mul(row, product.columns), column);
        emitStore(w, product.stored, kVector,
                  vector::FromElementsOp::create(w.b, w.loc, type, results),
                  product.result, w.toIndex(place),
                  {false, llvm::Align(kVector * bytes)});
      },
      storeAll);
}

/// One vector after the other: no more of them are in registers.
void TiledProduct::store(function_ref<Value(size_t)> getResult) {
  for (int64_t i = 0; i < own; ++i)
    for (int64_t group = 0; group < groups; ++group) {
      Value row = w.add(firstRow, w.toWord(getPlace(threadRow, i)));
      Value column =
          w.add(firstColumn, w.toWord(getPlace(threadColumn, group * kVector)));
      Values narrow;
      for (int64_t e = 0; e < kVector; ++e)
        narrow.push_back(w.narrow(
            getResult(size_t(i * own + group * kVector + e)), product.stored));
      storeRow(row, column, narrow);
    }
}

/// Adds a leaf to the sums of those before it, and stores the result behind the
/// last.
void TiledProduct::emitSums(ValueRange leaf, Value isFirst, Value isLast) {
  Value memory = w.view(product.scratch, w.b.getF64Type());
  auto getIndex = [&](size_t place) {
    return w.add(thread, w.constant(int64_t(place) * kBlockThreads));
  };
  auto put = [&](bool isOnTop) {
    for (auto [place, value] : llvm::enumerate(leaf)) {
      Value index = getIndex(place), sum = emitWidened(w, value);
      if (isOnTop)
        sum = arith::AddFOp::create(w.b, w.loc, w.load(memory, index), sum);
      w.store(sum, memory, index);
    }
  };
  w.branch(
      isFirst, [&] { put(/*isOnTop=*/false); }, [&] { put(/*isOnTop=*/true); });
  // They are read again: kept in registers all of them would be too many.
  w.when(isLast, [&] {
    store([&](size_t place) { return w.load(memory, getIndex(place)); });
  });
}

void TiledProduct::emitTile() {
  Value none = w.constantWord(0),
        leafDepth = w.constantWord(STEPC_PRODUCT_LEAF);
  w.branch(
      w.isLess(leafDepth, product.depth),
      [&] {
        Value depth = w.toIndex(product.depth);
        w.loop(w.constant(0), depth, STEPC_PRODUCT_LEAF, [&](Value at) {
          Value begin = w.toWord(at);
          Value end = w.min(product.depth, w.add(begin, leafDepth));
          Values leaf = emitLeaf(begin, end);
          emitSums(leaf, w.isEqual(begin, none), w.isEqual(end, product.depth));
        });
      },
      [&] {
        // The f64 of one leaf, narrowed, is the leaf.
        Values leaf = emitLeaf(none, product.depth);
        store([&](size_t place) { return emitWidened(w, leaf[place]); });
      });
}

/// Where tile `number` begins: of the whole result, or of its lower half, row
/// by row. Words.
std::pair<Value, Value> TiledProduct::locate(Value number) const {
  Value size = w.constantWord(side);
  if (!product.isSymmetric) {
    Value columns = w.ceilDiv(product.columns, side);
    return {w.mul(w.div(number, columns), size),
            w.mul(w.rem(number, columns), size)};
  }
  // The row r has the numbers from r (r + 1) / 2 on: roots of such squares are
  // exact.
  Type f64 = w.b.getF64Type();
  Value square = w.add(w.mul(number, w.constantWord(8)), w.constantWord(1));
  Value root = math::SqrtOp::create(
      w.b, w.loc, arith::SIToFPOp::create(w.b, w.loc, f64, square));
  Value floor = arith::FPToSIOp::create(w.b, w.loc, w.b.getI64Type(), root);
  Value one = w.constantWord(1), two = w.constantWord(2);
  Value row = w.div(w.sub(floor, one), two);
  Value before = w.div(w.mul(row, w.add(row, one)), two);
  return {w.mul(row, size), w.mul(w.sub(number, before), size)};
}

void TiledProduct::emit() {
  thread = emitThread(w);
  threadRow = w.div(thread, w.constant(kSide));
  threadColumn = w.rem(thread, w.constant(kSide));
  left.emplace(getSide(product.lhs, /*isLeft=*/true));
  right.emplace(getSide(product.rhs, /*isLeft=*/false));
  Value blocks = gpu::GridDimOp::create(w.b, w.loc, gpu::Dimension::x);
  Value tiles = w.toIndex(countProductTiles(w, product));
  w.loop(w.toIndex(product.firstTile), tiles, blocks, [&](Value number) {
    std::tie(firstRow, firstColumn) = locate(w.toWord(number));
    emitTile();
  });
}

void mlir::step::emitTiledProduct(const Words &w, const Product &product) {
  TiledProduct(w, product).emit();
}
