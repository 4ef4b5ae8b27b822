//===- ExpandPow.cpp - step-expand-pow ------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The operations of step.pow's description, one for one, without branches: what
// a special operand makes meaningless is computed and not selected.

#include "passes/Passes.h"
#include "passes/lower/ScalarFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <limits>

namespace mlir::step {
#define GEN_PASS_DEF_EXPANDPOW
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
/// The unevaluated sum of two f64.
struct Pair {
  Value high, low;
};

/// Emits the expansion of a power.
class Expander {
public:
  Expander(Location loc, OpBuilder &builder)
      : b(loc, builder.getInsertionBlock(), builder.getInsertionPoint()) {}

  Value pow(Value base, Value exponent);

private:
  Value number(double value) {
    return arith::ConstantOp::create(b, b.getF64FloatAttr(value));
  }
  Value integer(int64_t value) {
    return arith::ConstantIntOp::create(b, b.getI64Type(), value);
  }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, x, y); }
  Value less(Value x, Value y) {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, y);
  }
  Value equal(Value x, Value y) {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, x, y);
  }
  Value both(Value x, Value y) { return arith::AndIOp::create(b, x, y); }
  Value either(Value x, Value y) { return arith::OrIOp::create(b, x, y); }
  Value isNot(Value x) {
    Value yes = arith::ConstantIntOp::create(b, b.getI1Type(), 1);
    return arith::XOrIOp::create(b, x, yes);
  }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, condition, x, y);
  }
  Value toBits(Value x) {
    return arith::BitcastOp::create(b, b.getI64Type(), x);
  }
  Value fromBits(Value bits) {
    return arith::BitcastOp::create(b, b.getF64Type(), bits);
  }
  Value addBits(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  Value subBits(Value x, Value y) { return arith::SubIOp::create(b, x, y); }
  Value shiftLeft(Value x) { return arith::ShLIOp::create(b, x, integer(52)); }
  /// 2^exponent of a normal number.
  Value powerOfTwo(Value exponent) {
    return fromBits(shiftLeft(addBits(exponent, integer(1023))));
  }
  Value magnitude(Value x) {
    Value mask = integer(std::numeric_limits<int64_t>::max());
    return fromBits(arith::AndIOp::create(b, toBits(x), mask));
  }
  Value negate(Value x) {
    Value mask = integer(std::numeric_limits<int64_t>::min());
    return fromBits(arith::XOrIOp::create(b, toBits(x), mask));
  }

  Pair addOrdered(Value x, Value y);
  Pair addExactly(Value x, Value y);
  Pair split(Value x);
  Pair multiplyExactly(Value x, Value y);
  Pair add(Pair x, Pair y);
  Pair multiply(Pair x, Pair y);
  Pair divide(Pair x, Pair y);

  /// A series from its last term to its first: `term` makes of the sum so far
  /// and n the next sum, for n = last, last - stride, ... of `count` terms.
  Pair loop(Pair start, double last, double stride, int64_t count,
            llvm::function_ref<Pair(Pair, Value)> term);

  Pair log(Value x);
  Value exp(Pair x);
  Value isInteger(Value x);
  Value powOfMagnitude(Value x, Value y);

  ImplicitLocOpBuilder b;
};

struct ExpandPow : step::impl::ExpandPowBase<ExpandPow> {
  void runOnOperation() override {
    Location loc = getOperation().getLoc();
    SmallVector<Operation *> ops;
    getOperation().walk([&](PowOp op) { ops.push_back(op); });
    callInstead(ops, "power", [&](OpBuilder &b, ValueRange in) {
      return Expander(loc, b).pow(in[0], in[1]);
    });
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Pairs
//===----------------------------------------------------------------------===//

Pair Expander::addOrdered(Value x, Value y) {
  Value sum = add(x, y);
  return {sum, sub(y, sub(sum, x))};
}

Pair Expander::addExactly(Value x, Value y) {
  Value sum = add(x, y), part = sub(sum, x);
  return {sum, add(sub(x, sub(sum, part)), sub(y, part))};
}

Pair Expander::split(Value x) {
  Value scaled = mul(x, number(0x1.0000002p27));
  Value high = sub(scaled, sub(scaled, x));
  return {high, sub(x, high)};
}

Pair Expander::multiplyExactly(Value x, Value y) {
  Value product = mul(x, y);
  auto [xh, xl] = split(x);
  auto [yh, yl] = split(y);
  Value rest = add(add(sub(mul(xh, yh), product), mul(xh, yl)), mul(xl, yh));
  return {product, add(rest, mul(xl, yl))};
}

Pair Expander::add(Pair x, Pair y) {
  auto [sum, error] = addExactly(x.high, y.high);
  return addOrdered(sum, add(error, add(x.low, y.low)));
}

Pair Expander::multiply(Pair x, Pair y) {
  auto [product, error] = multiplyExactly(x.high, y.high);
  Value cross = add(mul(x.high, y.low), mul(x.low, y.high));
  return addOrdered(product, add(error, cross));
}

Pair Expander::divide(Pair x, Pair y) {
  Value quotient = div(x.high, y.high);
  auto [product, error] = multiplyExactly(quotient, y.high);
  Value rest = add(sub(sub(x.high, product), error), x.low);
  rest = sub(rest, mul(quotient, y.low));
  return addOrdered(quotient, div(rest, y.high));
}

Pair Expander::loop(Pair start, double last, double stride, int64_t count,
                    llvm::function_ref<Pair(Pair, Value)> term) {
  Value zero = integer(0), end = integer(count), one = integer(1);
  auto loop = scf::ForOp::create(
      b, zero, end, one, ValueRange{start.high, start.low, number(last)});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value n = loop.getRegionIterArg(2);
  Pair next = term({loop.getRegionIterArg(0), loop.getRegionIterArg(1)}, n);
  Value rest = sub(n, number(stride));
  scf::YieldOp::create(b, ValueRange{next.high, next.low, rest});
  return {loop.getResult(0), loop.getResult(1)};
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

static constexpr double log2High = 0x1.62e42fefa38p-1;
static constexpr double log2Low = 0x1.ef35793c7673p-45;

Pair Expander::log(Value x) {
  Value denormal = less(x, number(std::numeric_limits<double>::min()));
  Value bits = toBits(select(denormal, mul(x, number(0x1p54)), x));
  Value above = subBits(bits, toBits(number(0x1.6a09e667f3bcdp-1)));
  Value exponent = arith::ShRSIOp::create(b, above, integer(52));
  Value mantissa = fromBits(subBits(bits, shiftLeft(exponent)));
  exponent = select(denormal, subBits(exponent, integer(54)), exponent);
  Value e = arith::SIToFPOp::create(b, b.getF64Type(), exponent);

  Value zero = number(0.0), one = number(1.0), two = number(2.0);
  Pair s = divide({sub(mantissa, one), zero}, addExactly(mantissa, one));
  Pair square = multiply(s, s);
  Pair series = loop({zero, zero}, 33.0, 2.0, 17, [&](Pair sum, Value n) {
    return add(multiply(sum, square), divide({one, zero}, {n, zero}));
  });
  Pair result = multiply(s, series);
  return add(addExactly(mul(e, number(log2High)), mul(e, number(log2Low))),
             {mul(two, result.high), mul(two, result.low)});
}

Value Expander::exp(Pair x) {
  Value zero = number(0.0), one = number(1.0), bound = number(800.0);
  Value beyond = less(bound, magnitude(x.high));
  Value limit = select(less(zero, x.high), bound, number(-800.0));
  x = {select(beyond, limit, x.high), select(beyond, zero, x.low)};

  Value shift = number(0x1.8p52);
  Value shifted = add(mul(x.high, number(0x1.71547652b82fep+0)), shift);
  Value exponent = subBits(toBits(shifted), toBits(shift));
  Value k = sub(shifted, shift);
  Pair r = addExactly(x.high, negate(mul(k, number(log2High))));
  r = addOrdered(r.high, add(r.low, sub(x.low, mul(k, number(log2Low)))));
  Pair series = loop({one, zero}, 20.0, 1.0, 20, [&](Pair sum, Value n) {
    return add({one, zero}, divide(multiply(r, sum), {n, zero}));
  });
  Value half = arith::ShRSIOp::create(b, exponent, integer(1));
  Value rest = subBits(exponent, half);
  return mul(mul(series.high, powerOfTwo(half)), powerOfTwo(rest));
}

Value Expander::isInteger(Value x) {
  Value large = number(0x1p52);
  return either(isNot(less(x, large)), equal(sub(add(x, large), large), x));
}

Value Expander::powOfMagnitude(Value x, Value y) {
  Value high = number(0x1p64), low = number(-0x1p64);
  Value bounded = select(less(high, y), high, select(less(y, low), low, y));
  Pair logarithm = log(x);
  auto [product, error] = multiplyExactly(bounded, logarithm.high);
  Value rest = add(error, mul(bounded, logarithm.low));
  Value result = exp(addOrdered(product, rest));

  Value zero = number(0.0);
  Value infinity = number(std::numeric_limits<double>::infinity());
  Value positive = less(zero, y);
  result = select(equal(x, infinity), select(positive, x, zero), result);
  return select(equal(x, zero), select(positive, zero, infinity), result);
}

Value Expander::pow(Value base, Value exponent) {
  Value zero = number(0.0), one = number(1.0);
  Value infinity = number(std::numeric_limits<double>::infinity());
  Value nan = number(std::numeric_limits<double>::quiet_NaN());
  Value size = magnitude(exponent);
  Value integral = isInteger(size);
  Value odd = both(integral, isNot(isInteger(mul(size, number(0.5)))));
  Value result = powOfMagnitude(magnitude(base), exponent);

  Value signBit = arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                        toBits(base), integer(0));
  result = select(both(signBit, odd), negate(result), result);
  Value finiteNegative = both(less(base, zero), less(negate(infinity), base));
  result = select(both(finiteNegative, isNot(integral)), nan, result);
  Value anyNaN =
      arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, base, exponent);
  result = select(anyNaN, nan, result);
  return select(either(equal(base, one), equal(exponent, zero)), one, result);
}
