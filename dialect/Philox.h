//===- Philox.h - the random generator as code ------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_PHILOX_H
#define STEPC_DIALECT_PHILOX_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

#include <array>

namespace mlir::step {

/// Arithmetic of 64-bit words, of which the operations are cloned for vectors.
class WordEmitter {
public:
  WordEmitter(OpBuilder &builder, Location loc) : b(builder), loc(loc) {}

  Value constantWord(int64_t value) const {
    return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value));
  }
  Value add(Value x, Value y) const {
    return arith::AddIOp::create(b, loc, x, y);
  }
  Value mul(Value x, Value y) const {
    return arith::MulIOp::create(b, loc, x, y);
  }
  Value both(Value x, Value y) const {
    return arith::AndIOp::create(b, loc, x, y);
  }
  Value either(Value x, Value y) const {
    return arith::OrIOp::create(b, loc, x, y);
  }
  Value differ(Value x, Value y) const {
    return arith::XOrIOp::create(b, loc, x, y);
  }
  Value shiftLeft(Value x, int64_t bits) const {
    return arith::ShLIOp::create(b, loc, x, constantWord(bits));
  }
  Value shiftRight(Value x, int64_t bits) const {
    return arith::ShRUIOp::create(b, loc, x, constantWord(bits));
  }
  Value isEqual(Value x, Value y) const {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, x, y);
  }
  Value isUnequal(Value x, Value y) const {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, x, y);
  }
  Value isZero(Value word) const { return isEqual(word, constantWord(0)); }
  /// Whether bit `number` of the word is not set.
  Value lacksBit(Value x, int64_t number) const {
    return isZero(both(x, constantWord(int64_t(1) << number)));
  }
  Value select(Value condition, Value x, Value y) const {
    return arith::SelectOp::create(b, loc, condition, x, y);
  }

  OpBuilder &b;
  Location loc;
};

/// Philox4x32-10: the four words of the counter become random ones. Words of 32
/// bits are the lower halves of i64, whose upper halves mean nothing: so a
/// product is one multiplication of vectors, and no lane changes its width. The
/// key is two words, the lower half of the i64 first.
std::array<Value, 4> emitPhilox(const WordEmitter &w,
                                std::array<Value, 4> counter, Value key);

} // namespace mlir::step

#endif // STEPC_DIALECT_PHILOX_H
