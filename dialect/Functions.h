//===- Functions.h - exp, log and others, without a library ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What step.exp, step.log and step.pow compute, written once: the interpreter
// and folds compute it with doubles, passes emit it as operations on f64 or on
// vectors of them, in the same order. There are no branches: what a special
// operand makes meaningless is computed and not selected.
//
// In f32 the same functions are computed of the operands as doubles and rounded
// once, which also leaves denormals, overflow and underflow to the conversion.
// Errors, in units in the last place (docs/functions.md derives and measures
// them): in f64 exp and log less than 1, pow less than 0.51 and 0.76 where the
// result is denormal; in f32 each less than 0.501.
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_DIALECT_FUNCTIONS_H
#define STEPC_DIALECT_FUNCTIONS_H

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace mlir::step {

/// Functions of the arithmetic `A`, which has types of numbers (f64), of their
/// bits as integers, and of conditions; HostArithmetic says how.
template <typename A>
class Functions {
public:
  using Number = typename A::Number;
  using Bits = typename A::Bits;
  using Truth = typename A::Truth;

  explicit Functions(A &a) : a(a) {}

  Number exp(Number x);
  Number log(Number x);
  /// The quantile of the normal distribution of 1/2 + q, for q of magnitude
  /// below 1/2, of which 1/2 - |q| is exact.
  Number normalQuantile(Number q);
  /// Of a base and an exponent in f64.
  Number pow(Number base, Number exponent) {
    return powByParts(base, exponent, [&](Number x, Number y) {
      Pair logarithm = logOfPairs(x);
      auto [product, error] = multiplyExactly(y, logarithm.high);
      return expOfPair(
          addOrdered(product, a.add(error, a.mul(y, logarithm.low))));
    });
  }
  /// Of what was f32 and becomes f32: y * log(x) is wrong by less than 2^-44
  /// where the power is a number of f32, and so the power by 2^-20 units.
  Number powOfSingle(Number base, Number exponent) {
    return powByParts(base, exponent, [&](Number x, Number y) {
      return exp(a.mul(y, log(x)));
    });
  }

private:
  /// The sum of both, of which `low` is at most half a unit in the last place
  /// of `high`.
  struct Pair {
    Number high, low;
  };
  /// A positive, finite number is mantissa * 2^exponent, with the mantissa
  /// between the roots of 1/2 and 2.
  struct Parts {
    Number mantissa, exponent;
  };

  /// log(2) in two parts: the product of the first with an integer below 2^11
  /// is exact.
  static constexpr double log2High = 0x1.62e42fefa38p-1;
  static constexpr double log2Low = 0x1.ef35793c7673p-45;
  /// Added to a double below 2^51, leaves it rounded to an integer in the low
  /// bits.
  static constexpr double integerShift = 0x1.8p52;
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  static constexpr double quietNaN = std::numeric_limits<double>::quiet_NaN();

  Number number(double value) { return a.number(value); }
  /// To the nearest integer, as a number and as bits.
  std::pair<Number, Bits> roundToInteger(Number x) {
    Number shifted = a.add(x, number(integerShift));
    Bits integer = a.subBits(a.toBits(shifted), a.toBits(number(integerShift)));
    return {a.sub(shifted, number(integerShift)), integer};
  }
  /// An integer below 2^51 as a number.
  Number toNumber(Bits integer) {
    Bits shifted = a.addBits(a.toBits(number(integerShift)), integer);
    return a.sub(a.fromBits(shifted), number(integerShift));
  }
  /// 2^exponent of a normal number.
  Number powerOfTwo(Bits exponent) {
    return a.fromBits(a.shiftLeft(a.addBits(exponent, a.bits(1023)), 52));
  }
  /// x * 2^exponent, which may be out of range: in two steps.
  Number scale(Number x, Bits exponent) {
    Bits half = a.shiftRight(exponent, 1);
    Bits rest = a.subBits(exponent, half);
    return a.mul(a.mul(x, powerOfTwo(half)), powerOfTwo(rest));
  }
  Number magnitude(Number x) {
    Bits mask = a.bits(std::numeric_limits<int64_t>::max());
    return a.fromBits(a.bitwiseAnd(a.toBits(x), mask));
  }
  Number negate(Number x) {
    Bits mask = a.bits(std::numeric_limits<int64_t>::min());
    return a.fromBits(a.bitwiseXor(a.toBits(x), mask));
  }
  /// No further from 0 than `limit`; NaN stays.
  Number clamp(Number x, double limit) {
    Number high = number(limit), low = number(-limit);
    return a.select(a.less(high, x), high, a.select(a.less(x, low), low, x));
  }
  Parts takeApart(Number x);
  /// The polynomial of these coefficients, the constant one first.
  template <std::size_t size>
  Number evaluate(const double (&coefficients)[size], Number x) {
    Number sum = number(coefficients[size - 1]);
    for (std::size_t k = size - 1; k-- > 0;)
      sum = a.add(a.mul(sum, x), number(coefficients[k]));
    return sum;
  }

  Pair addOrdered(Number x, Number y) {
    Number sum = a.add(x, y);
    return {sum, a.sub(y, a.sub(sum, x))};
  }
  Pair addExactly(Number x, Number y) {
    Number sum = a.add(x, y), part = a.sub(sum, x);
    return {sum, a.add(a.sub(x, a.sub(sum, part)), a.sub(y, part))};
  }
  Pair split(Number x) {
    Number scaled = a.mul(x, number(0x1.0000002p27));
    Number high = a.sub(scaled, a.sub(scaled, x));
    return {high, a.sub(x, high)};
  }
  Pair multiplyExactly(Number x, Number y);
  Pair add(Pair x, Pair y) {
    auto [sum, error] = addExactly(x.high, y.high);
    return addOrdered(sum, a.add(error, a.add(x.low, y.low)));
  }
  Pair multiply(Pair x, Pair y) {
    auto [product, error] = multiplyExactly(x.high, y.high);
    Number cross = a.add(a.mul(x.high, y.low), a.mul(x.low, y.high));
    return addOrdered(product, a.add(error, cross));
  }
  Pair divide(Pair x, Pair y);
  /// A series from its last term to its first: `term` makes of the sum so far
  /// and n the next sum, for n = last, last - stride, ... of `count` terms.
  template <typename Fn>
  Pair sumSeries(Pair start, double last, double stride, int count, Fn term) {
    auto [high, low] =
        a.loop(start.high, start.low, last, stride, count,
               [&](Number sumHigh, Number sumLow, Number n) {
                 Pair next = term(Pair{sumHigh, sumLow}, n);
                 return std::pair<Number, Number>(next.high, next.low);
               });
    return {high, low};
  }
  Pair logOfPairs(Number x);
  Number expOfPair(Pair x);

  /// True for an integer x >= 0.
  Truth isInteger(Number x) {
    Number large = number(0x1p52);
    return a.either(a.isNot(a.less(x, large)),
                    a.equal(a.sub(a.add(x, large), large), x));
  }
  /// x^y of a positive, finite x and a y that is bounded by `ofMagnitudes`,
  /// and of all others what IEEE 754 says.
  template <typename Fn>
  Number powByParts(Number base, Number exponent, Fn ofMagnitudes);
  template <typename Fn>
  Number powOfMagnitude(Number x, Number y, Fn ofMagnitudes);

  A &a;
};

//===----------------------------------------------------------------------===//
// exp and log
//===----------------------------------------------------------------------===//

/// x = k * log(2) + r + rest, |r| <= log(2) / 2, and exp(r) by Taylor's series
/// up to r^13/13!: what is left out is less than 2^-57 of the result.
template <typename A>
typename A::Number Functions<A>::exp(Number x) {
  x = clamp(x, 800.0); // no result is beyond those of 710 and -746
  auto [k, integer] = roundToInteger(a.mul(x, number(0x1.71547652b82fep+0)));
  Number high = a.sub(x, a.mul(k, number(log2High)));
  Number low = a.mul(k, number(log2Low));
  Number r = a.sub(high, low);
  Number rest = a.sub(a.sub(high, r), low);

  double factorial = 6227020800.0; // 13!
  Number series = number(1.0 / factorial);
  for (int n = 12; n >= 2; --n) {
    factorial /= n + 1;
    series = a.add(a.mul(series, r), number(1.0 / factorial));
  }
  Number curved = a.add(rest, a.mul(a.mul(r, r), series));
  return scale(a.add(number(1.0), a.add(r, curved)), integer);
}

template <typename A>
typename Functions<A>::Parts Functions<A>::takeApart(Number x) {
  Truth denormal = a.less(x, number(std::numeric_limits<double>::min()));
  Bits bits = a.toBits(a.select(denormal, a.mul(x, number(0x1p54)), x));
  Bits above = a.subBits(bits, a.toBits(number(0x1.6a09e667f3bcdp-1)));
  Bits exponent = a.shiftRight(above, 52);
  Number mantissa = a.fromBits(a.subBits(bits, a.shiftLeft(exponent, 52)));
  Number e = toNumber(exponent);
  return {mantissa, a.select(denormal, a.sub(e, number(54.0)), e)};
}

/// e * log(2) + log(1 + f), by s = f / (2 + f) and 2 * atanh(s) = 2 * s +
/// s * R with R = s^2 * (2/3 + 2/5 * s^2 + ... + 2/21 * s^18), where 2 * s is
/// f - f^2/2 + s * f^2/2, so that f, which is exact, is added last. What is
/// left out is less than 2^-59 of the result.
template <typename A>
typename A::Number Functions<A>::log(Number x) {
  auto [mantissa, e] = takeApart(x);
  Number f = a.sub(mantissa, number(1.0));
  Number s = a.div(f, a.add(number(2.0), f)), square = a.mul(s, s);
  Number series = number(2.0 / 21.0);
  for (double n = 19.0; n >= 3.0; n -= 2.0)
    series = a.add(a.mul(series, square), number(2.0 / n));
  Number half = a.mul(a.mul(number(0.5), f), f);
  Number low = a.add(a.mul(s, a.add(half, a.mul(square, series))),
                     a.mul(e, number(log2Low)));
  Number result = a.sub(a.mul(e, number(log2High)), a.sub(a.sub(half, low), f));

  Number zero = number(0.0), largest = number(infinity);
  result = a.select(a.equal(x, largest), largest, result);
  result = a.select(a.equal(x, zero), number(-infinity), result);
  Truth none = a.either(a.less(x, zero), a.unordered(x, x));
  return a.select(none, number(quietNaN), result);
}

//===----------------------------------------------------------------------===//
// The quantile of the normal distribution
//===----------------------------------------------------------------------===//

/// Quotients of polynomials, of M. J. Wichura, "Algorithm AS 241: The
/// Percentage Points of the Normal Distribution", Applied Statistics 37(3),
/// 1988, PPND16: one for |q| <= 0.425, and by the root r of -log(1/2 - |q|),
/// which is |z| / sqrt(2) far out, one for r <= 5 and one beyond.
struct NormalQuantile {
  static constexpr double middle[2][8] = {
      {3.3871328727963666080e0, 1.3314166789178437745e+2,
       1.9715909503065514427e+3, 1.3731693765509461125e+4,
       4.5921953931549871457e+4, 6.7265770927008700853e+4,
       3.3430575583588128105e+4, 2.5090809287301226727e+3},
      {1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2,
       5.3941960214247511077e+3, 2.1213794301586595867e+4,
       3.9307895800092710610e+4, 2.8729085735721942674e+4,
       5.2264952788528545610e+3}};
  static constexpr double side[2][8] = {
      {1.42343711074968357734e0, 4.63033784615654529590e0,
       5.76949722146069140550e0, 3.64784832476320460504e0,
       1.27045825245236838258e0, 2.41780725177450611770e-1,
       2.27238449892691845833e-2, 7.74545014278341407640e-4},
      {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0,
       6.89767334985100004550e-1, 1.48103976427480074590e-1,
       1.51986665636164571966e-2, 5.47593808499534494600e-4,
       1.05075007164441684324e-9}};
  static constexpr double tail[2][8] = {
      {6.65790464350110377720e0, 5.46378491116411436990e0,
       1.78482653991729133580e0, 2.96560571828504891230e-1,
       2.65321895265761230930e-2, 1.24266094738807843860e-3,
       2.71155556874348757815e-5, 2.01033439929228813265e-7},
      {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1,
       1.48753612908506148525e-2, 7.86869131145613259100e-4,
       1.84631831751005468180e-5, 1.42151175831644588870e-7,
       2.04426310338993978564e-15}};
};

template <typename A>
typename A::Number Functions<A>::normalQuantile(Number q) {
  using Of = NormalQuantile;
  auto quotient = [&](const double (&of)[2][8], Number x) {
    return a.div(evaluate(of[0], x), evaluate(of[1], x));
  };
  Number size = magnitude(q);
  Number inside = a.mul(
      size, quotient(Of::middle, a.sub(number(0.180625), a.mul(size, size))));
  Number r = a.sqrt(negate(log(a.sub(number(0.5), size))));
  Number beside = quotient(Of::side, a.sub(r, number(1.6)));
  Number beyond = quotient(Of::tail, a.sub(r, number(5.0)));
  Number outside = a.select(a.less(number(5.0), r), beyond, beside);
  Number result = a.select(a.less(number(0.425), size), outside, inside);
  return a.select(a.less(q, number(0.0)), negate(result), result);
}

//===----------------------------------------------------------------------===//
// Pairs: the unevaluated sum of two doubles, some 104 bits (Dekker, "A
// floating-point technique for extending the available precision", 1971)
//===----------------------------------------------------------------------===//

template <typename A>
typename Functions<A>::Pair Functions<A>::multiplyExactly(Number x, Number y) {
  Number product = a.mul(x, y);
  auto [xh, xl] = split(x);
  auto [yh, yl] = split(y);
  Number rest =
      a.add(a.add(a.sub(a.mul(xh, yh), product), a.mul(xh, yl)), a.mul(xl, yh));
  return {product, a.add(rest, a.mul(xl, yl))};
}

template <typename A>
typename Functions<A>::Pair Functions<A>::divide(Pair x, Pair y) {
  Number quotient = a.div(x.high, y.high);
  auto [product, error] = multiplyExactly(quotient, y.high);
  Number rest = a.add(a.sub(a.sub(x.high, product), error), x.low);
  rest = a.sub(rest, a.mul(quotient, y.low));
  return addOrdered(quotient, a.div(rest, y.high));
}

/// log(x) of a positive, finite x = m * 2^e: e * log(2) + 2 * atanh(s), s = (m
/// - 1) / (m + 1), by the series s * (1 + s^2/3 + s^4/5 + ...) up to s^32/33.
/// It is wrong by less than 2^-82 of itself.
template <typename A>
typename Functions<A>::Pair Functions<A>::logOfPairs(Number x) {
  auto [mantissa, e] = takeApart(x);
  Number zero = number(0.0), one = number(1.0), two = number(2.0);
  Pair s = divide(Pair{a.sub(mantissa, one), zero}, addExactly(mantissa, one));
  Pair square = multiply(s, s);
  Pair series =
      sumSeries(Pair{zero, zero}, 33.0, 2.0, 17, [&](Pair sum, Number n) {
        Pair next = multiply(sum, square);
        return add(next, divide(Pair{one, zero}, Pair{n, zero}));
      });
  Pair result = multiply(s, series);
  Pair whole =
      addExactly(a.mul(e, number(log2High)), a.mul(e, number(log2Low)));
  return add(whole, Pair{a.mul(two, result.high), a.mul(two, result.low)});
}

/// exp(x), rounded once, or twice where it is denormal. x = k * log(2) + r with
/// |r| <= log(2) / 2, and exp(r) by Taylor's series up to r^20/20!.
template <typename A>
typename A::Number Functions<A>::expOfPair(Pair x) {
  Number zero = number(0.0), one = number(1.0);
  Truth beyond = a.less(number(800.0), magnitude(x.high));
  x = {clamp(x.high, 800.0), a.select(beyond, zero, x.low)};
  auto [k, integer] =
      roundToInteger(a.mul(x.high, number(0x1.71547652b82fep+0)));
  Pair r = addExactly(x.high, negate(a.mul(k, number(log2High))));
  Number low = a.sub(x.low, a.mul(k, number(log2Low)));
  r = addOrdered(r.high, a.add(r.low, low));
  Pair series =
      sumSeries(Pair{one, zero}, 20.0, 1.0, 20, [&](Pair sum, Number n) {
        return add(Pair{one, zero}, divide(multiply(r, sum), Pair{n, zero}));
      });
  return scale(series.high, integer);
}

//===----------------------------------------------------------------------===//
// pow
//===----------------------------------------------------------------------===//

/// |x|^y of numbers that are not NaN.
template <typename A>
template <typename Fn>
typename A::Number Functions<A>::powOfMagnitude(Number x, Number y,
                                                Fn ofMagnitudes) {
  // Any larger exponent has the same result, and could overflow on the way.
  Number result = ofMagnitudes(x, clamp(y, 0x1p64));
  Number zero = number(0.0), largest = number(infinity);
  Truth positive = a.less(zero, y);
  result = a.select(a.equal(x, largest), a.select(positive, x, zero), result);
  return a.select(a.equal(x, zero), a.select(positive, zero, largest), result);
}

template <typename A>
template <typename Fn>
typename A::Number Functions<A>::powByParts(Number base, Number exponent,
                                            Fn ofMagnitudes) {
  Number zero = number(0.0), one = number(1.0), nan = number(quietNaN);
  Number largest = number(infinity);
  Number size = magnitude(exponent);
  Truth integral = isInteger(size);
  Truth odd = a.both(integral, a.isNot(isInteger(a.mul(size, number(0.5)))));
  Number result = powOfMagnitude(magnitude(base), exponent, ofMagnitudes);
  Truth isNegative = a.lessBits(a.toBits(base), a.bits(0));
  result = a.select(a.both(isNegative, odd), negate(result), result);
  Truth finiteNegative =
      a.both(a.less(base, zero), a.less(negate(largest), base));
  result = a.select(a.both(finiteNegative, a.isNot(integral)), nan, result);
  result = a.select(a.unordered(base, exponent), nan, result);
  Truth always = a.either(a.equal(base, one), a.equal(exponent, zero));
  return a.select(always, one, result);
}

} // namespace mlir::step

#endif // STEPC_DIALECT_FUNCTIONS_H
