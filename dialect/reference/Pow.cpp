//===- Pow.cpp - a real power, without a mathematical library -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// x^y = exp(y * log(x)), in pairs of doubles: the unevaluated sum of a double
// and a much smaller one, some 104 bits (Dekker, "A floating-point technique
// for extending the available precision", 1971). The logarithm is wrong by less
// than 2^-82 of itself, y * log(x) by less than 2^-72 where the power is
// finite, so the power is wrong by 2^-19 units in the last place before its
// last rounding.

#include "dialect/reference/Meaning.h"

#include "llvm/ADT/bit.h"

#include <cmath>
#include <limits>

using namespace mlir::step::reference;

namespace {
/// The sum of both, of which `low` is at most half a unit in the last place of
/// `high`.
struct Pair {
  double high, low;
};
} // namespace

/// log(2) in two parts: the product of the first with an integer below 2^11 is
/// exact.
static constexpr double log2High = 0x1.62e42fefa38p-1;
static constexpr double log2Low = 0x1.ef35793c7673p-45;
/// Added to a double below 2^51, leaves it rounded to an integer in the low
/// bits.
static constexpr double integerShift = 0x1.8p52;

static double fromBits(int64_t bits) { return llvm::bit_cast<double>(bits); }
static int64_t toBits(double x) { return llvm::bit_cast<int64_t>(x); }

/// x + y where |x| >= |y|.
static Pair addOrdered(double x, double y) {
  double sum = x + y;
  return {sum, y - (sum - x)};
}

/// x + y, exactly (Knuth).
static Pair addExactly(double x, double y) {
  double sum = x + y, part = sum - x;
  return {sum, (x - (sum - part)) + (y - part)};
}

/// x in two parts of 26 bits.
static Pair split(double x) {
  double scaled = x * 0x1.0000002p27;
  double high = scaled - (scaled - x);
  return {high, x - high};
}

/// x * y, exactly.
static Pair multiplyExactly(double x, double y) {
  double product = x * y;
  auto [xh, xl] = split(x);
  auto [yh, yl] = split(y);
  return {product, ((xh * yh - product) + xh * yl + xl * yh) + xl * yl};
}

static Pair add(Pair x, Pair y) {
  auto [sum, error] = addExactly(x.high, y.high);
  return addOrdered(sum, error + (x.low + y.low));
}

static Pair multiply(Pair x, Pair y) {
  auto [product, error] = multiplyExactly(x.high, y.high);
  return addOrdered(product, error + (x.high * y.low + x.low * y.high));
}

static Pair divide(Pair x, Pair y) {
  double quotient = x.high / y.high;
  auto [product, error] = multiplyExactly(quotient, y.high);
  double rest = (((x.high - product) - error) + x.low) - quotient * y.low;
  return addOrdered(quotient, rest / y.high);
}

/// log(x) of a positive, finite x = m * 2^e, m between the roots of 1/2 and 2:
/// e * log(2) + 2 * atanh(s), s = (m - 1) / (m + 1), by the series
/// s * (1 + s^2/3 + s^4/5 + ...) up to s^32/33.
static Pair logOf(double x) {
  bool denormal = x < std::numeric_limits<double>::min();
  int64_t bits = toBits(denormal ? x * 0x1p54 : x);
  int64_t exponent = (bits - toBits(0x1.6a09e667f3bcdp-1)) >> 52;
  double mantissa = fromBits(bits - (exponent << 52));
  double e = static_cast<double>(denormal ? exponent - 54 : exponent);
  Pair s = divide({mantissa - 1.0, 0.0}, addExactly(mantissa, 1.0));
  Pair square = multiply(s, s), series = {0.0, 0.0};
  for (double n = 33.0; n > 0.0; n -= 2.0)
    series = add(multiply(series, square), divide({1.0, 0.0}, {n, 0.0}));
  Pair result = multiply(s, series);
  return add(addExactly(e * log2High, e * log2Low),
             {2.0 * result.high, 2.0 * result.low});
}

/// exp(x), rounded once, or twice where it is denormal. x = k * log(2) + r with
/// |r| <= log(2) / 2, and exp(r) by Taylor's series up to r^20/20!.
static double expOf(Pair x) {
  if (std::fabs(x.high) > 800.0) // more than any result can be
    x = {x.high > 0.0 ? 800.0 : -800.0, 0.0};
  double shifted = x.high * 0x1.71547652b82fep+0 + integerShift;
  int64_t exponent = toBits(shifted) - toBits(integerShift);
  double k = shifted - integerShift;
  Pair r = addExactly(x.high, -(k * log2High));
  r = addOrdered(r.high, r.low + (x.low - k * log2Low));
  Pair series = {1.0, 0.0};
  for (double n = 20.0; n > 0.0; n -= 1.0)
    series = add({1.0, 0.0}, divide(multiply(r, series), {n, 0.0}));
  int64_t half = exponent >> 1; // 2^k may be out of range
  return series.high * fromBits((half + 1023) << 52) *
         fromBits((exponent - half + 1023) << 52);
}

/// True for an integer x >= 0.
static bool isInteger(double x) {
  return x >= 0x1p52 || (x + 0x1p52) - 0x1p52 == x;
}

/// |x|^y of numbers that are not NaN.
static double powOfMagnitude(double x, double y) {
  if (x == 0.0)
    return y > 0.0 ? 0.0 : std::numeric_limits<double>::infinity();
  if (x == std::numeric_limits<double>::infinity())
    return y > 0.0 ? x : 0.0;
  // Any larger exponent has the same result, and could overflow on the way.
  double bounded = y > 0x1p64 ? 0x1p64 : y < -0x1p64 ? -0x1p64 : y;
  Pair logarithm = logOf(x);
  auto [product, error] = multiplyExactly(bounded, logarithm.high);
  return expOf(addOrdered(product, error + bounded * logarithm.low));
}

double mlir::step::reference::pow(double base, double exponent) {
  if (base == 1.0 || exponent == 0.0)
    return 1.0;
  if (std::isnan(base) || std::isnan(exponent))
    return std::numeric_limits<double>::quiet_NaN();
  double size = std::fabs(exponent);
  bool integer = isInteger(size), odd = integer && !isInteger(size * 0.5);
  if (base < 0.0 && !std::isinf(base) && !integer)
    return std::numeric_limits<double>::quiet_NaN();
  double result = powOfMagnitude(std::fabs(base), exponent);
  return std::signbit(base) && odd ? -result : result;
}
