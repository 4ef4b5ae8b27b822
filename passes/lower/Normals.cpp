//===- Normals.cpp - random numbers in a finish ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/Normals.h"

#include "dialect/Philox.h"
#include "dialect/RandomBits.h"
#include "passes/lower/Finish.h"
#include "passes/lower/FunctionEmitter.h"

using namespace mlir;
using namespace mlir::step;

/// The quantile, in f64, of the upper bits of two random words.
static Value emitNormal(const Words &w, Value low, Value high) {
  OpBuilder &b = w.b;
  Value both =
      w.differ(w.both(low, w.constantWord(0xffffffff)), w.shiftLeft(high, 32));
  Value k = w.shiftRight(both, 64 - kNormalBits);
  // Each of these is exact.
  Value q = arith::SIToFPOp::create(b, w.loc, b.getF64Type(), k);
  q = arith::AddFOp::create(b, w.loc, q, w.number(0.5));
  q = arith::SubFOp::create(b, w.loc, q, w.number(0x1p51));
  q = arith::MulFOp::create(b, w.loc, q, w.number(0x1p-52));
  return emitNormalQuantile(b, w.loc, q);
}

/// The bits of the seed, and of any NaN those of the quiet one.
static Value emitKey(const Words &w, Value seed) {
  Value isNaN =
      arith::CmpFOp::create(w.b, w.loc, arith::CmpFPredicate::UNO, seed, seed);
  return w.select(isNaN, w.constantWord(kNaNKey), w.toBits(seed));
}

void mlir::step::emitNormals(const Words &w, const TileRow &row,
                             const FinishPolicy &policy, NormalsOp op) {
  auto type = cast<BufferType>(op.getResult().getType());
  Type stored = type.getElement();
  Value count = w.constantWord(1), address = row.getAddress(op.getResult());
  ArrayRef<StringAttr> dims = type.getDims();
  Extents extents = row.getExtents(dims);
  for (unsigned position = 0; position < dims.size(); ++position)
    count = w.mul(count, extents[position]);
  // What is stepped whole begins at its first element.
  Value first = row.getAddress(op.getPosition());
  Value seed = emitKey(w, row.getScalar(op.getSeed()));
  Value step = row.getScalar(op.getCount());
  policy.forEach(
      Places(count, w.constantWord(1)), [&](Value number, Value offset) {
        Value position = w.add(first, offset);
        Value block = w.shiftRight(position, 1);
        auto [c0, c1, c2, c3] =
            emitPhilox(w,
                       {block, w.shiftRight(block, 32), step,
                        w.constantWord(hashNormals(op.getName()))},
                       seed);
        Value isEven = w.lacksBit(position, 0);
        Value element =
            emitNormal(w, w.select(isEven, c0, c2), w.select(isEven, c1, c3));
        emitStore(w, stored, 0, w.narrow(element, stored), address,
                  w.toIndex(number));
      });
}
