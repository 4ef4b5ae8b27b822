//===- Storage.cpp - what values become in memory, and halves of them -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/ops/Parts.h"
#include "dialect/ops/StochasticRound.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <limits>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

/// What passes insert has no meaning for the interpreter, which rounds where
/// the source says that something is stored.
static ValueParts getInsertedParts(decltype(ValueParts::emit) emit) {
  ValueParts parts;
  parts.sharding = Sharding::Elementwise;
  parts.emit = emit;
  return parts;
}

//===----------------------------------------------------------------------===//
// step.stored, step.broadcast, step.round
//===----------------------------------------------------------------------===//

static Element evaluateOperand(Operation *, ArrayRef<Element> x, Format) {
  return x[0];
}

static BoundElement boundOperand(Operation *, ArrayRef<BoundElement> x,
                                 Format) {
  return x[0];
}

OpFoldResult StoredOp::fold(FoldAdaptor) {
  // An argument that is stored for itself has its storage type already.
  auto argument = dyn_cast<BlockArgument>(getOperand());
  if (argument && getRoles() == ArrayRef<int64_t>(argument.getArgNumber()))
    return getOperand();
  return {};
}

/// What it is rounded for is what the rule returns it for.
ValueParts StoredOp::getParts() {
  ValueParts parts = getInsertedParts(emitOperand);
  parts.evaluate = evaluateOperand;
  parts.bound = boundOperand;
  return parts;
}

ValueParts BroadcastOp::getParts() { return getInsertedParts(emitOperand); }

/// To the storage type and back: no machine converts between f64 and 16 bits.
static Value emitRound(OpBuilder &builder, Operation *op, ValueRange in, Type) {
  Location loc = op->getLoc();
  Value value = in[0];
  Type element = value.getType(), f32 = builder.getF32Type();
  SmallVector<Type, 2> steps{cast<RoundOp>(op).getStorage()};
  if (element == steps[0])
    return value;
  if (element.isF64() && steps[0] != f32)
    steps.insert(steps.begin(), f32);
  for (Type step : steps)
    value = arith::TruncFOp::create(builder, loc, step, value);
  for (Type step : llvm::drop_begin(llvm::reverse(steps)))
    value = arith::ExtFOp::create(builder, loc, step, value);
  return arith::ExtFOp::create(builder, loc, element, value);
}

/// A number or an interval, in the type of a `step.round`.
template <typename NumberT>
static NumberT roundAs(Operation *op, NumberT number) {
  Type storage = cast<RoundOp>(op).getStorage();
  Format format = storage.isBF16()  ? Format::BF16
                  : storage.isF16() ? Format::F16
                                    : Format::F32;
  return roundTo(format, roundTo(Format::F32, number));
}

static Element evaluateRound(Operation *op, ArrayRef<Element> x, Format) {
  return Element::of(roundAs(op, x[0].number));
}

static BoundElement boundRound(Operation *op, ArrayRef<BoundElement> x,
                               Format) {
  BoundElement result = x[0];
  result.number = roundAs(op, result.number);
  return result;
}

ValueParts RoundOp::getParts() {
  ValueParts parts;
  parts.sharding = Sharding::Elementwise;
  parts.symbol = "round";
  parts.emit = emitRound;
  parts.evaluate = evaluateRound;
  parts.bound = boundRound;
  return parts;
}

static Value emitRoundStochastic(OpBuilder &b, Operation *op, ValueRange in,
                                 Type) {
  return emitStochasticRound(b, op->getLoc(), {in[0], in[1], in[2], in[3]},
                             cast<RoundStochasticOp>(op).getOf());
}

ValueParts RoundStochasticOp::getParts() {
  return getInsertedParts(emitRoundStochastic);
}

//===----------------------------------------------------------------------===//
// step.upper_half, step.lower_half, step.join_halves
//===----------------------------------------------------------------------===//

/// `ofNaN` where x is NaN, else `value`.
static Value selectNaN(OpBuilder &builder, Location loc, Value x, Value ofNaN,
                       Value value) {
  Value isNaN =
      arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::UNO, x, x);
  return arith::SelectOp::create(builder, loc, isNaN, ofNaN, value);
}

/// The bits of the nearest bf16, ties away from zero. Adding half of the last
/// kept bit carries into the exponent, and from the largest numbers to
/// infinity, as it should; so it does for NaN, of which nothing is left.
static Value emitUpperBits(OpBuilder &b, Location loc, Value bits) {
  auto constant = [&](int32_t value) {
    return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(value));
  };
  Value sum = arith::AddIOp::create(b, loc, bits, constant(0x8000));
  return arith::AndIOp::create(b, loc, sum, constant(-0x10000));
}

static Value emitUpperHalf(OpBuilder &b, Operation *op, ValueRange in, Type) {
  Location loc = op->getLoc();
  Value x = in[0];
  Value bits = arith::BitcastOp::create(b, loc, b.getI32Type(), x);
  Value upper = arith::BitcastOp::create(b, loc, x.getType(),
                                         emitUpperBits(b, loc, bits));
  Value nan = arith::ConstantOp::create(
      b, loc,
      b.getFloatAttr(x.getType(), APFloat::getQNaN(APFloat::IEEEsingle())));
  return selectNaN(b, loc, x, nan, upper);
}

ValueParts UpperHalfOp::getParts() { return getInsertedParts(emitUpperHalf); }

static Value emitLowerHalf(OpBuilder &b, Operation *op, ValueRange in, Type) {
  Location loc = op->getLoc();
  Value x = in[0];
  Value bits = arith::BitcastOp::create(b, loc, b.getI32Type(), x);
  Value rest = arith::SubIOp::create(b, loc, bits, emitUpperBits(b, loc, bits));
  Value lower = arith::SIToFPOp::create(b, loc, x.getType(), rest);
  Value zero =
      arith::ConstantOp::create(b, loc, b.getFloatAttr(x.getType(), 0.0));
  return selectNaN(b, loc, x, zero, lower);
}

ValueParts LowerHalfOp::getParts() { return getInsertedParts(emitLowerHalf); }

static Value emitJoinHalves(OpBuilder &b, Operation *op, ValueRange in, Type) {
  Location loc = op->getLoc();
  Value upper = in[0], lower = in[1];
  Type i32 = b.getI32Type();
  Value bits = arith::BitcastOp::create(b, loc, i32, upper);
  Value rest = arith::FPToSIOp::create(b, loc, i32, lower);
  Value sum = arith::AddIOp::create(b, loc, bits, rest);
  Value whole = arith::BitcastOp::create(b, loc, upper.getType(), sum);
  return selectNaN(b, loc, whole, upper, whole);
}

ValueParts JoinHalvesOp::getParts() { return getInsertedParts(emitJoinHalves); }
