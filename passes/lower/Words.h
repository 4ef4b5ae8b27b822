//===- Words.h - kernels read the table as 64-bit words ---------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_WORDS_H
#define STEPC_PASSES_LOWER_WORDS_H

#include "dialect/Philox.h"
#include "dialect/Step.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"

namespace mlir::step {

/// Emits arithmetic on words, addresses (i64) and indices, and loops over
/// these.
class Words : public WordEmitter {
public:
  using WordEmitter::WordEmitter;

  Value constant(int64_t value) const {
    return arith::ConstantIndexOp::create(b, loc, value);
  }
  /// The memory at an address, as elements of the type.
  Value view(Value address, Type element) const {
    return ViewOp::create(
        b, loc, MemRefType::get({ShapedType::kDynamic}, element), address);
  }
  Value words(Value address) const { return view(address, b.getI64Type()); }
  Value load(Value view, Value index) const {
    return memref::LoadOp::create(b, loc, view, ValueRange{index});
  }
  Value load(Value view, int64_t index) const {
    return load(view, constant(index));
  }
  void store(Value value, Value view, Value index) const {
    memref::StoreOp::create(b, loc, value, view, ValueRange{index});
  }
  Value toIndex(Value word) const {
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), word);
  }
  Value toWord(Value index) const {
    return arith::IndexCastOp::create(b, loc, b.getI64Type(), index);
  }
  Value sub(Value x, Value y) const {
    return arith::SubIOp::create(b, loc, x, y);
  }
  /// The address of word `index` from an address on.
  Value addressOf(Value address, Value index) const {
    return add(address, mul(index, constantWord(8)));
  }
  Value div(Value x, Value y) const {
    return arith::DivUIOp::create(b, loc, x, y);
  }
  Value rem(Value x, Value y) const {
    return arith::RemUIOp::create(b, loc, x, y);
  }
  Value min(Value x, Value y) const {
    return arith::MinSIOp::create(b, loc, x, y);
  }
  Value max(Value x, Value y) const {
    return arith::MaxSIOp::create(b, loc, x, y);
  }
  /// Of words, signed.
  Value isLess(Value x, Value y) const {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, y);
  }
  /// An f64.
  Value number(double value) const {
    return arith::ConstantOp::create(b, loc, b.getF64FloatAttr(value));
  }
  /// The condition that an f64 stands for.
  Value isTrue(Value value) const {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, value,
                                 number(0.0));
  }
  Value toBits(Value number) const {
    return arith::BitcastOp::create(b, loc, b.getI64Type(), number);
  }
  Value toNumber(Value bits) const {
    return arith::BitcastOp::create(b, loc, b.getF64Type(), bits);
  }
  /// A float in a type that is narrower, or its own.
  Value narrow(Value value, Type type) const {
    return value.getType() == type
               ? value
               : arith::TruncFOp::create(b, loc, type, value);
  }
  /// `if (condition) ...`
  void when(Value condition, function_ref<void()> emitThen) const {
    auto branch =
        scf::IfOp::create(b, loc, condition, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    emitThen();
  }
  /// `if (condition) ... else ...`
  void branch(Value condition, function_ref<void()> emitThen,
              function_ref<void()> emitElse) const {
    auto branch = scf::IfOp::create(b, loc, condition, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    emitThen();
    b.setInsertionPointToStart(branch.elseBlock());
    emitElse();
  }
  /// `condition ? ... : ...`, of which one is computed.
  Value choose(Type type, Value condition, function_ref<Value()> emitThen,
               function_ref<Value()> emitElse) const;

  /// Of words: x / y rounded up, y a constant.
  Value ceilDiv(Value x, int64_t y) const {
    return div(add(x, constantWord(y - 1)), constantWord(y));
  }
  /// Of indices: `count` rounded down to a multiple of `unit`, a power of two.
  Value floorTo(Value count, int64_t unit) const {
    return arith::AndIOp::create(b, loc, count, constant(-unit));
  }

  /// `for (i = begin; i < end; i += step)`; `emitBody` fills it.
  void loop(Value begin, Value end, int64_t step,
            function_ref<void(Value)> emitBody) const {
    loop(begin, end, constant(step), emitBody);
  }
  void loop(Value begin, Value end, Value step,
            function_ref<void(Value)> emitBody) const {
    auto loop = scf::ForOp::create(b, loc, begin, end, step);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    emitBody(loop.getInductionVar());
  }

  /// The same loop, from whose turn to turn values go: from `init` on what
  /// `emitBody` makes of them. Gives what the last one leaves.
  SmallVector<Value>
  foldAll(Value begin, Value end, Value step, ValueRange init,
          function_ref<SmallVector<Value>(Value, ValueRange)> emitBody) const;
  Value fold(Value begin, Value end, int64_t step, Value init,
             function_ref<Value(Value, Value)> emitBody) const;

  /// `while (emitCondition(values)) values = emitBody(values)`, from `init` on;
  /// gives the last.
  SmallVector<Value>
  repeatAll(ValueRange init, function_ref<Value(ValueRange)> emitCondition,
            function_ref<SmallVector<Value>(ValueRange)> emitBody) const;
  Value repeat(Value init, function_ref<Value(Value)> emitCondition,
               function_ref<Value(Value)> emitBody) const;
};

/// A function of the module that is inlined where it is called, of `words` i64
/// arguments and then `indices` of type index. Its entry block is empty.
func::FuncOp makeInternalFunction(OpBuilder &builder, Location loc,
                                  StringRef name, int64_t words,
                                  int64_t indices);

/// A function of the module that all kernels call, made by the first: of
/// `words` i64 arguments and then `indices` of type index, without results.
/// `emitBody` fills it, but for the return.
func::FuncOp
getSharedFunction(const Words &w, StringRef name, int64_t words,
                  int64_t indices,
                  function_ref<void(const Words &, ValueRange)> emitBody);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_WORDS_H
