//===- FunctionEmitter.cpp - the functions of the language as code --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/FunctionEmitter.h"

#include "dialect/Functions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::step;

bool mlir::step::canExpand(Operation *op) {
  Type element = getElementTypeOrSelf(op->getResult(0).getType());
  return isa<FloatType>(element) && op->getParentOfType<FunctionOpInterface>();
}

namespace {
/// What Functions are made of, emitted. Everything has the shape of `like`: an
/// element, or a vector.
class EmittedArithmetic {
public:
  using Number = Value;
  using Bits = Value;
  using Truth = Value;

  EmittedArithmetic(OpBuilder &builder, Location loc, Type like)
      : b(loc, builder.getInsertionBlock(), builder.getInsertionPoint()),
        numbers(withElements(like, builder.getF64Type())),
        integers(withElements(like, builder.getI64Type())),
        conditions(withElements(like, builder.getI1Type())) {}

  Value number(double value) {
    return constant(numbers, b.getF64FloatAttr(value));
  }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, x, y); }
  Value sqrt(Value x) { return math::SqrtOp::create(b, x); }
  Value less(Value x, Value y) {
    return compare(arith::CmpFPredicate::OLT, x, y);
  }
  Value equal(Value x, Value y) {
    return compare(arith::CmpFPredicate::OEQ, x, y);
  }
  Value unordered(Value x, Value y) {
    return compare(arith::CmpFPredicate::UNO, x, y);
  }
  Value both(Value x, Value y) { return arith::AndIOp::create(b, x, y); }
  Value either(Value x, Value y) { return arith::OrIOp::create(b, x, y); }
  Value isNot(Value x) {
    Value yes = constant(conditions, b.getBoolAttr(true));
    return arith::XOrIOp::create(b, x, yes);
  }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, condition, x, y);
  }

  Value bits(int64_t value) {
    return constant(integers, b.getI64IntegerAttr(value));
  }
  Value toBits(Value x) { return arith::BitcastOp::create(b, integers, x); }
  Value fromBits(Value x) { return arith::BitcastOp::create(b, numbers, x); }
  Value addBits(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  Value subBits(Value x, Value y) { return arith::SubIOp::create(b, x, y); }
  Value shiftLeft(Value x, int number) {
    return arith::ShLIOp::create(b, x, bits(number));
  }
  Value shiftRight(Value x, int number) {
    return arith::ShRSIOp::create(b, x, bits(number));
  }
  Value bitwiseAnd(Value x, Value y) { return arith::AndIOp::create(b, x, y); }
  Value bitwiseXor(Value x, Value y) { return arith::XOrIOp::create(b, x, y); }
  Value lessBits(Value x, Value y) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, x, y);
  }

  std::pair<Value, Value>
  loop(Value high, Value low, double last, double stride, int count,
       function_ref<std::pair<Value, Value>(Value, Value, Value)> term);

private:
  static Type withElements(Type like, Type element) {
    auto vector = dyn_cast<VectorType>(like);
    return vector ? Type(vector.clone(element)) : element;
  }
  Value constant(Type type, TypedAttr value) {
    if (auto vector = dyn_cast<VectorType>(type))
      value = DenseElementsAttr::get(vector, Attribute(value));
    return arith::ConstantOp::create(b, value);
  }
  Value compare(arith::CmpFPredicate predicate, Value x, Value y) {
    return arith::CmpFOp::create(b, predicate, x, y);
  }

  ImplicitLocOpBuilder b;
  Type numbers, integers, conditions;
};
} // namespace

std::pair<Value, Value> EmittedArithmetic::loop(
    Value high, Value low, double last, double stride, int count,
    function_ref<std::pair<Value, Value>(Value, Value, Value)> term) {
  auto integer = [&](int64_t value) {
    return arith::ConstantIntOp::create(b, b.getI64Type(), value);
  };
  Value zero = integer(0), end = integer(count), one = integer(1);
  auto loop = scf::ForOp::create(b, zero, end, one,
                                 ValueRange{high, low, number(last)});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value n = loop.getRegionIterArg(2);
  auto [nextHigh, nextLow] =
      term(loop.getRegionIterArg(0), loop.getRegionIterArg(1), n);
  Value rest = sub(n, number(stride));
  scf::YieldOp::create(b, ValueRange{nextHigh, nextLow, rest});
  return {loop.getResult(0), loop.getResult(1)};
}

/// In f64 what `emit` makes of the operands; in f32 that of these as doubles,
/// rounded.
static Value
emitFunction(OpBuilder &builder, Location loc, ValueRange in,
             function_ref<Value(EmittedArithmetic &, ValueRange)> emit) {
  Type type = in[0].getType();
  EmittedArithmetic arithmetic(builder, loc, type);
  if (getElementTypeOrSelf(type).isF64())
    return emit(arithmetic, in);
  Type wide = builder.getF64Type();
  if (auto vector = dyn_cast<VectorType>(type))
    wide = vector.clone(wide);
  SmallVector<Value> doubles;
  for (Value value : in)
    doubles.push_back(arith::ExtFOp::create(builder, loc, wide, value));
  return arith::TruncFOp::create(builder, loc, type, emit(arithmetic, doubles));
}

Value mlir::step::emitExp(OpBuilder &builder, Location loc, Value x) {
  return emitFunction(builder, loc, x, [](EmittedArithmetic &a, ValueRange in) {
    return Functions(a).exp(in[0]);
  });
}

Value mlir::step::emitLog(OpBuilder &builder, Location loc, Value x) {
  return emitFunction(builder, loc, x, [](EmittedArithmetic &a, ValueRange in) {
    return Functions(a).log(in[0]);
  });
}

Value mlir::step::emitNormalQuantile(OpBuilder &builder, Location loc,
                                     Value q) {
  return emitFunction(builder, loc, q, [](EmittedArithmetic &a, ValueRange in) {
    return Functions(a).normalQuantile(in[0]);
  });
}

Value mlir::step::emitPow(OpBuilder &builder, Location loc, Value base,
                          Value exponent) {
  bool isDouble = getElementTypeOrSelf(base.getType()).isF64();
  return emitFunction(builder, loc, {base, exponent},
                      [&](EmittedArithmetic &a, ValueRange in) {
                        Functions functions(a);
                        return isDouble ? functions.pow(in[0], in[1])
                                        : functions.powOfSingle(in[0], in[1]);
                      });
}
