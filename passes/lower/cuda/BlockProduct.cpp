//===- BlockProduct.cpp - a product by the threads of a block -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/BlockProduct.h"

#include "passes/lower/Combiners.h"
#include "passes/lower/cuda/BlockTree.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::step;

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
    Value left = w.mul(row, product.lhs.rowStride);
    Value right = w.mul(column, product.rhs.columnStride);
    Value depth = w.toIndex(product.depth), zero = w.constant(0);
    Value none = w.number(0.0);
    auto addLeaf = [&](Value begin, Value before) {
      Value end = w.min(depth, w.add(begin, w.constant(STEPC_PRODUCT_LEAF)));
      Value start = arith::ConstantOp::create(
          w.b, w.loc, w.b.getFloatAttr(product.compute, 0.0));
      Value chain = w.fold(begin, end, 1, start, [&](Value at, Value sum) {
        Value k = w.toWord(at);
        auto load = [&](const Matrix &matrix, Value first, Value stride) {
          return loadElement(w, matrix, product.compute,
                             w.toIndex(w.add(first, w.mul(k, stride))));
        };
        return math::FmaOp::create(
            w.b, w.loc, load(product.lhs, left, product.lhs.columnStride),
            load(product.rhs, right, product.rhs.rowStride), sum);
      });
      Value leaf = emitWidened(w, chain);
      Value sum = arith::AddFOp::create(w.b, w.loc, before, leaf);
      return w.select(w.isEqual(begin, zero), leaf, sum);
    };
    Value result = w.fold(zero, depth, STEPC_PRODUCT_LEAF, none, addLeaf);
    emitStore(w, product.stored, 0, w.narrow(result, product.stored),
              product.result, w.toIndex(number));
  });
}
