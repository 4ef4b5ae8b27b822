//===- BlockProduct.cpp - a product by the threads of a block -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/BlockProduct.h"

#include "passes/lower/BodyEmitter.h"
#include "passes/lower/Combiners.h"
#include "passes/lower/cuda/BlockTree.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::step;

/// The zero of its sign.
static Value toZero(const Words &w, Value number) {
  Type i32 = w.b.getI32Type();
  Value bits = arith::BitcastOp::create(w.b, w.loc, i32, number);
  Value mask = arith::ConstantOp::create(
      w.b, w.loc, w.b.getI32IntegerAttr(std::numeric_limits<int32_t>::min()));
  return arith::BitcastOp::create(w.b, w.loc, number.getType(),
                                  w.both(bits, mask));
}

/// The f32 of the bf16 nearest to it, or a zero where that is denormal.
static Value toFactor(const Words &w, Value number) {
  Type f32 = w.b.getF32Type();
  Value narrow = w.narrow(number, w.b.getBF16Type());
  Value rounded = arith::ExtFOp::create(w.b, w.loc, f32, narrow);
  Value size = math::AbsFOp::create(w.b, w.loc, rounded);
  Value least =
      arith::ConstantOp::create(w.b, w.loc, w.b.getF32FloatAttr(0x1p-126F));
  Value isDenormal =
      arith::CmpFOp::create(w.b, w.loc, arith::CmpFPredicate::OLT, size, least);
  return w.select(isDenormal, toZero(w, rounded), rounded);
}

/// One more product of factors of bf16. A sum is a zero where it is below
/// 2^-126 once it has 24 bits; 2^-126 - 2^-151 is a tie, which goes up. In f64
/// the product is exact, and the sum where it is near that.
static Value addFactors(const Words &w, Value x, Value y, Value sum) {
  Type f64 = w.b.getF64Type();
  auto widen = [&](Value value) -> Value {
    return arith::ExtFOp::create(w.b, w.loc, f64, value);
  };
  Value made = math::FmaOp::create(w.b, w.loc, x, y, sum);
  Value product = arith::MulFOp::create(w.b, w.loc, widen(x), widen(y));
  Value size = math::AbsFOp::create(
      w.b, w.loc, arith::AddFOp::create(w.b, w.loc, product, widen(sum)));
  Value isFlushed = arith::CmpFOp::create(w.b, w.loc, arith::CmpFPredicate::OLT,
                                          size, w.number(0x1p-126 - 0x1p-151));
  return w.select(isFlushed, toZero(w, made), made);
}

namespace {
/// One element of the result, a chain of products.
struct Chain {
  /// Of numbers k, words.
  function_ref<Value(Value)> left, right;
  const Product &product;

  Value add(const Words &w, Value k, Value sum) const {
    return math::FmaOp::create(w.b, w.loc, left(k), right(k), sum);
  }
  /// The second of a pair first.
  Value addPair(const Words &w, Value k, Value sum) const {
    Value next = w.add(k, w.constantWord(1));
    Value isThere = w.isLess(next, product.depth);
    Value zero =
        arith::ConstantOp::create(w.b, w.loc, w.b.getF32FloatAttr(0.0F));
    auto second = [&](function_ref<Value(Value)> load) {
      return w.choose(
          zero.getType(), isThere, [&] { return toFactor(w, load(next)); },
          [&] { return zero; });
    };
    sum = addFactors(w, second(left), second(right), sum);
    return addFactors(w, toFactor(w, left(k)), toFactor(w, right(k)), sum);
  }
  /// Of the numbers from `begin` to `end`, indices.
  Value addLeaf(const Words &w, Value begin, Value end) const {
    Value start = arith::ConstantOp::create(
        w.b, w.loc, w.b.getFloatAttr(product.compute, 0.0));
    return w.fold(
        begin, end, product.inPairs ? 2 : 1, start, [&](Value at, Value sum) {
          Value k = w.toWord(at);
          return product.inPairs ? addPair(w, k, sum) : add(w, k, sum);
        });
  }
};
} // namespace

/// A thread computes an element: one chain over k, in leaves.
void mlir::step::emitBlockProduct(const Words &w, const Product &product) {
  Value elements = w.mul(product.rows, product.columns);
  emitBlockLoop(w, elements, [&](Value number) {
    Value row = w.div(number, product.columns);
    Value column = w.rem(number, product.columns);
    // What is declared so has no upper half of its own.
    if (product.isSymmetric) {
      Value later = w.max(row, column);
      column = w.min(row, column);
      row = later;
    }
    auto load = [&](const Matrix &matrix, Value row, Value column) {
      Value place = w.add(w.mul(row, matrix.rowStride),
                          w.mul(column, matrix.columnStride));
      return loadElement(w, matrix, product.compute, w.toIndex(place));
    };
    auto left = [&](Value k) { return load(product.lhs, row, k); };
    auto right = [&](Value k) { return load(product.rhs, k, column); };
    Chain chain{left, right, product};
    Value depth = w.toIndex(product.depth), zero = w.constant(0);
    auto addLeaf = [&](Value begin, Value before) {
      Value end = w.min(depth, w.add(begin, w.constant(STEPC_PRODUCT_LEAF)));
      Value leaf = emitWidened(w, chain.addLeaf(w, begin, end));
      Value sum = arith::AddFOp::create(w.b, w.loc, before, leaf);
      return w.select(w.isEqual(begin, zero), leaf, sum);
    };
    Value result =
        w.fold(zero, depth, STEPC_PRODUCT_LEAF, w.number(0.0), addLeaf);
    emitStore(w, product.stored, 0, w.narrow(result, product.stored),
              product.result, w.toIndex(number));
  });
}
