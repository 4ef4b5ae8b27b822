//===- ScalarCode.cpp - one operation of a rule as scalar code ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ScalarCode.h"
#include "passes/schedule/StochasticRound.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/ErrorHandling.h"

using namespace mlir;
using namespace mlir::step;

/// The double rounded once to `type`.
static TypedAttr roundConstant(OpBuilder &builder, FloatAttr value, Type type) {
  APFloat number = value.getValue();
  bool losesInfo;
  number.convert(cast<FloatType>(type).getFloatSemantics(),
                 APFloat::rmNearestTiesToEven, &losesInfo);
  return builder.getFloatAttr(type, number);
}

Value mlir::step::mapOrMaterialize(OpBuilder &builder, Value value,
                                   IRMapping &mapping, Type type) {
  if (Value mapped = mapping.lookupOrNull(value))
    return mapped;
  auto constant = value.getDefiningOp<ConstantOp>();
  assert(constant && "only constants are materialized where they are used");
  TypedAttr attr = constant.getValue();
  if (auto number = dyn_cast<FloatAttr>(attr))
    attr = roundConstant(builder, number, type);
  return arith::ConstantOp::create(builder, constant.getLoc(), attr);
}

static arith::CmpFPredicate getCmpPredicate(Predicate predicate) {
  switch (predicate) {
  case Predicate::LT:
    return arith::CmpFPredicate::OLT;
  case Predicate::LE:
    return arith::CmpFPredicate::OLE;
  case Predicate::GT:
    return arith::CmpFPredicate::OGT;
  case Predicate::GE:
    return arith::CmpFPredicate::OGE;
  case Predicate::EQ:
    return arith::CmpFPredicate::OEQ;
  case Predicate::NE:
    return arith::CmpFPredicate::UNE;
  }
  llvm_unreachable("not a predicate");
}

/// x > 0 ? 1 : x < 0 ? -1 : x, so that zeros and NaN stay as they are.
static Value emitSign(OpBuilder &builder, Location loc, Value x) {
  auto constant = [&](double value) {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getFloatAttr(x.getType(), value));
  };
  Value zero = constant(0.0);
  Value positive =
      arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGT, x, zero);
  Value negative =
      arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLT, x, zero);
  Value inner =
      arith::SelectOp::create(builder, loc, negative, constant(-1.0), x);
  return arith::SelectOp::create(builder, loc, positive, constant(1.0), inner);
}

/// From the nearer end, so that both ends are exact: start + weight * (end -
/// start), or end + (weight - 1) * (end - start). Of a weight that is the same
/// for all elements the condition and the factor are computed once.
static Value emitLerp(OpBuilder &b, Location loc, Value start, Value end,
                      Value weight) {
  auto constant = [&](double value) {
    return arith::ConstantOp::create(b, loc,
                                     b.getFloatAttr(weight.getType(), value));
  };
  Value nearStart = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT,
                                          weight, constant(0.5));
  Value fromEnd = arith::SubFOp::create(b, loc, weight, constant(1.0));
  Value factor = arith::SelectOp::create(b, loc, nearStart, weight, fromEnd);
  Value nearer = arith::SelectOp::create(b, loc, nearStart, start, end);
  Value difference = arith::SubFOp::create(b, loc, end, start);
  Value product = arith::MulFOp::create(b, loc, factor, difference);
  return arith::AddFOp::create(b, loc, nearer, product);
}

/// To the storage type and back.
static Value emitNot(OpBuilder &builder, Location loc, Value x) {
  Value yes =
      arith::ConstantOp::create(builder, loc, builder.getBoolAttr(true));
  return arith::XOrIOp::create(builder, loc, x, yes);
}

/// NaN is not below infinity either.
static Value emitIsFinite(OpBuilder &builder, Location loc, Value x) {
  auto type = cast<FloatType>(x.getType());
  Value infinity = arith::ConstantOp::create(
      builder, loc,
      builder.getFloatAttr(type, APFloat::getInf(type.getFloatSemantics())));
  Value magnitude = math::AbsFOp::create(builder, loc, x);
  return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLT,
                               magnitude, infinity);
}

static Value emitRound(OpBuilder &builder, Location loc, Value value,
                       Type storage) {
  Value narrow = arith::TruncFOp::create(builder, loc, storage, value);
  return arith::ExtFOp::create(builder, loc, value.getType(), narrow);
}

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

static Value emitUpperHalf(OpBuilder &b, Location loc, Value x) {
  Value bits = arith::BitcastOp::create(b, loc, b.getI32Type(), x);
  Value upper = arith::BitcastOp::create(b, loc, x.getType(),
                                         emitUpperBits(b, loc, bits));
  Value nan = arith::ConstantOp::create(
      b, loc,
      b.getFloatAttr(x.getType(), APFloat::getQNaN(APFloat::IEEEsingle())));
  return selectNaN(b, loc, x, nan, upper);
}

static Value emitLowerHalf(OpBuilder &b, Location loc, Value x) {
  Value bits = arith::BitcastOp::create(b, loc, b.getI32Type(), x);
  Value rest = arith::SubIOp::create(b, loc, bits, emitUpperBits(b, loc, bits));
  Value lower = arith::SIToFPOp::create(b, loc, x.getType(), rest);
  Value zero =
      arith::ConstantOp::create(b, loc, b.getFloatAttr(x.getType(), 0.0));
  return selectNaN(b, loc, x, zero, lower);
}

static Value emitJoinHalves(OpBuilder &b, Location loc, Value upper,
                            Value lower) {
  Type i32 = b.getI32Type();
  Value bits = arith::BitcastOp::create(b, loc, i32, upper);
  Value rest = arith::FPToSIOp::create(b, loc, i32, lower);
  Value sum = arith::AddIOp::create(b, loc, bits, rest);
  Value whole = arith::BitcastOp::create(b, loc, upper.getType(), sum);
  return selectNaN(b, loc, whole, upper, whole);
}

Value mlir::step::emitScalarCode(OpBuilder &b, Operation *op,
                                 IRMapping &mapping, Type type) {
  Location loc = op->getLoc();
  SmallVector<Value> in;
  for (Value operand : op->getOperands())
    in.push_back(mapOrMaterialize(b, operand, mapping, type));
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case([&](ConstantOp constant) {
        return mapOrMaterialize(b, constant, mapping, type);
      })
      .Case([&](NegOp) { return arith::NegFOp::create(b, loc, in[0]); })
      .Case([&](AbsOp) { return math::AbsFOp::create(b, loc, in[0]); })
      .Case([&](SqrtOp) { return math::SqrtOp::create(b, loc, in[0]); })
      .Case([&](SignOp) { return emitSign(b, loc, in[0]); })
      .Case([&](AddOp) { return arith::AddFOp::create(b, loc, in[0], in[1]); })
      .Case([&](SubOp) { return arith::SubFOp::create(b, loc, in[0], in[1]); })
      .Case([&](MulOp) { return arith::MulFOp::create(b, loc, in[0], in[1]); })
      .Case([&](DivOp) { return arith::DivFOp::create(b, loc, in[0], in[1]); })
      .Case([&](MaximumOp) {
        return arith::MaximumFOp::create(b, loc, in[0], in[1]);
      })
      .Case([&](MinimumOp) {
        return arith::MinimumFOp::create(b, loc, in[0], in[1]);
      })
      .Case([&](LerpOp) { return emitLerp(b, loc, in[0], in[1], in[2]); })
      .Case([&](CompareOp compare) {
        return arith::CmpFOp::create(
            b, loc, getCmpPredicate(compare.getPredicate()), in[0], in[1]);
      })
      .Case([&](SelectOp) {
        return arith::SelectOp::create(b, loc, in[0], in[1], in[2]);
      })
      .Case([&](AndOp) { return arith::AndIOp::create(b, loc, in[0], in[1]); })
      .Case([&](OrOp) { return arith::OrIOp::create(b, loc, in[0], in[1]); })
      .Case([&](NotOp) { return emitNot(b, loc, in[0]); })
      .Case([&](IsFiniteOp) { return emitIsFinite(b, loc, in[0]); })
      .Case([&](PowiOp) { return PowiOp::create(b, loc, in[0], in[1]); })
      .Case([&](PowOp) { return PowOp::create(b, loc, in[0], in[1]); })
      .Case([&](ToF64Op) {
        return arith::SIToFPOp::create(b, loc, b.getF64Type(), in[0]);
      })
      .Case([&](ToI64Op) {
        return arith::FPToSIOp::create(b, loc, b.getI64Type(), in[0]);
      })
      .Case([&](BroadcastOp) { return in[0]; })
      .Case([&](RoundOp round) {
        return emitRound(b, loc, in[0], round.getStorage());
      })
      .Case([&](RoundStochasticOp round) {
        return emitStochasticRound(b, loc, {in[0], in[1], in[2], in[3]},
                                   round.getOf());
      })
      .Case([&](UpperHalfOp) { return emitUpperHalf(b, loc, in[0]); })
      .Case([&](LowerHalfOp) { return emitLowerHalf(b, loc, in[0]); })
      .Case([&](JoinHalvesOp) { return emitJoinHalves(b, loc, in[0], in[1]); })
      // The verifier of rules lets through operations of the language, which
      // are those above.
      .Default([](Operation *op) -> Value {
        llvm::report_fatal_error("no scalar code is known for '" +
                                 op->getName().getStringRef() + "'");
      });
}
