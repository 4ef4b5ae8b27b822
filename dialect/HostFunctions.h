//===- HostFunctions.h - exp, log and pow of doubles ------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_DIALECT_HOSTFUNCTIONS_H
#define STEPC_DIALECT_HOSTFUNCTIONS_H

#include "dialect/Functions.h"

#include <cmath>
#include <cstring>
#include <tuple>

namespace mlir::step {

/// What Functions are made of, computed here and now. The host rounds as IEEE
/// 754 says (reference::hostIsInDefaultMode), and no compiler contracts.
struct HostArithmetic {
  using Number = double;
  using Bits = int64_t;
  using Truth = bool;

  double number(double value) { return value; }
  double add(double x, double y) { return x + y; }
  double sub(double x, double y) { return x - y; }
  double mul(double x, double y) { return x * y; }
  double div(double x, double y) { return x / y; }
  double sqrt(double x) { return std::sqrt(x); }
  bool less(double x, double y) { return x < y; }
  bool equal(double x, double y) { return x == y; }
  bool unordered(double x, double y) { return std::isunordered(x, y); }
  bool both(bool x, bool y) { return x && y; }
  bool either(bool x, bool y) { return x || y; }
  bool isNot(bool x) { return !x; }
  double select(bool condition, double x, double y) {
    return condition ? x : y;
  }

  int64_t bits(int64_t value) { return value; }
  int64_t toBits(double x) {
    int64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
  }
  double fromBits(int64_t bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  // What wraps around is that of a special operand.
  int64_t addBits(int64_t x, int64_t y) {
    return int64_t(uint64_t(x) + uint64_t(y));
  }
  int64_t subBits(int64_t x, int64_t y) {
    return int64_t(uint64_t(x) - uint64_t(y));
  }
  int64_t shiftLeft(int64_t x, int number) {
    return int64_t(uint64_t(x) << number);
  }
  int64_t shiftRight(int64_t x, int number) { return x >> number; }
  int64_t bitwiseAnd(int64_t x, int64_t y) { return x & y; }
  int64_t bitwiseXor(int64_t x, int64_t y) { return x ^ y; }
  bool lessBits(int64_t x, int64_t y) { return x < y; }

  template <typename Fn>
  std::pair<double, double> loop(double high, double low, double n,
                                 double stride, int count, Fn term) {
    for (int k = 0; k < count; ++k, n -= stride)
      std::tie(high, low) = term(high, low, n);
    return {high, low};
  }
};

inline double hostExp(double x) {
  HostArithmetic a;
  return Functions<HostArithmetic>(a).exp(x);
}
inline double hostLog(double x) {
  HostArithmetic a;
  return Functions<HostArithmetic>(a).log(x);
}
inline double hostNormalQuantile(double q) {
  HostArithmetic a;
  return Functions<HostArithmetic>(a).normalQuantile(q);
}
inline double hostPow(double base, double exponent) {
  HostArithmetic a;
  return Functions<HostArithmetic>(a).pow(base, exponent);
}
/// Of values of f32; it has to be rounded to f32.
inline double hostPowOfSingle(double base, double exponent) {
  HostArithmetic a;
  return Functions<HostArithmetic>(a).powOfSingle(base, exponent);
}

} // namespace mlir::step

#endif // STEPC_DIALECT_HOSTFUNCTIONS_H
