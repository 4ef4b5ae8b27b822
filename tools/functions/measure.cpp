//===- measure.cpp - how far exp, log and pow are from exact ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// measure [STRIDE [SAMPLES]]: exp and log of every STRIDE-th f32 (1: of all),
// and pow and the functions of f64 of SAMPLES random operands, against the C
// library's in long double, which has 11 bits more than a double. Prints the
// largest error of each in units in the last place, and fails where it is not
// below what docs/functions.md states.
//
//===----------------------------------------------------------------------===//

#include "dialect/HostFunctions.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

using namespace mlir::step;

static bool failed = false;

/// The distance from one number of the format at `value` to the next.
template <typename T>
static long double getUnit(long double value) {
  using Limits = std::numeric_limits<T>;
  int exponent = Limits::min_exponent - 1;
  if (value != 0 && std::isfinite(value))
    exponent =
        std::clamp(std::ilogb(value), exponent, Limits::max_exponent - 1);
  return std::ldexp(1.0L, exponent - Limits::digits + 1);
}

namespace {
/// The largest error of one function so far, and where it was.
struct Worst {
  const char *name;
  double stated;
  double units = 0.0, x = 0.0, y = 0.0;
  int64_t count = 0;

  template <typename T>
  void look(T result, long double exact, double atX, double atY = 0.0) {
    ++count;
    // Infinity stands for the first number that is too large.
    long double first = std::ldexp(1.0L, std::numeric_limits<T>::max_exponent);
    long double actual =
        std::isinf(result) ? std::copysign(first, result) : result;
    if (std::fabs(exact) > first)
      exact = std::copysign(first, exact);
    double error = double(std::fabs(exact - actual) / getUnit<T>(exact));
    if (std::isnan(exact) || std::isnan(result))
      error = std::isnan(exact) && std::isnan(result) ? 0.0 : HUGE_VAL;
    if (error <= units)
      return;
    units = error;
    x = atX;
    y = atY;
  }
  void merge(const Worst &other) {
    count += other.count;
    if (other.units > units)
      std::tie(units, x, y) = std::tie(other.units, other.x, other.y);
  }
  void report() {
    std::printf(
        "%-12s %11lld operands, at most %.7f units at %a, %a; stated %g\n",
        name, static_cast<long long>(count), units, x, y, stated);
    failed |= !(units < stated);
  }
};
} // namespace

/// The worst of two functions.
struct Both {
  Worst first, second;
};

/// `measure` on every thread, with its number and how many there are.
template <typename Fn>
static void measureByThreads(const Both &names, Fn measure) {
  unsigned count = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Both> found(count, names);
  std::vector<std::thread> threads;
  for (unsigned k = 0; k < count; ++k)
    threads.emplace_back([&, k] { measure(found[k], k, count); });
  Both all = names;
  for (unsigned k = 0; k < count; ++k) {
    threads[k].join();
    all.first.merge(found[k].first);
    all.second.merge(found[k].second);
  }
  all.first.report();
  all.second.report();
}

static void measureSingles(int64_t stride) {
  Both names{{"exp f32", 0.501}, {"log f32", 0.501}};
  measureByThreads(names, [=](Both &worst, int64_t thread, int64_t threads) {
    int64_t step = stride * threads;
    for (int64_t bits = stride * thread; bits < int64_t(1) << 32;
         bits += step) {
      uint32_t word = static_cast<uint32_t>(bits);
      float x;
      std::memcpy(&x, &word, sizeof x);
      // In double the library is wrong by less than one of its units, 2^-29 of
      // one here.
      worst.first.look(static_cast<float>(hostExp(x)), std::exp(double(x)), x);
      worst.second.look(static_cast<float>(hostLog(x)), std::log(double(x)), x);
    }
  });
}

using Long = long double;

static void measureDoubles(int64_t samples) {
  Both names{{"exp f64", 1.0}, {"log f64", 1.0}};
  measureByThreads(names, [=](Both &worst, int64_t thread, int64_t threads) {
    std::mt19937_64 random(1 + 2 * thread);
    std::uniform_real_distribution<double> size(-760, 720), near(-2, 2),
        exponent(-1074, 1024), part(1, 2);
    for (int64_t k = thread; k < samples; k += threads) {
      bool isNear = random() % 2;
      double x = isNear ? near(random) : size(random);
      worst.first.look(hostExp(x), std::exp(Long(x)), x);
      double z = std::ldexp(part(random), isNear ? -int(random() % 2)
                                                 : int(exponent(random)));
      worst.second.look(hostLog(z), std::log(Long(z)), z);
    }
  });
}

/// Of bases near 1, and of any; powers are 2 to what is uniform.
static void measurePowers(int64_t samples) {
  Both names{{"pow f32", 0.501}, {"pow f64", 0.76}};
  measureByThreads(names, [=](Both &worst, int64_t thread, int64_t threads) {
    std::mt19937_64 random(2 + 2 * thread);
    std::uniform_real_distribution<double> exponent(-149, 128), part(1, 2),
        power(-155, 132), wide(-1080, 1026), broad(-1074, 1024);
    for (int64_t k = thread; k < samples; k += threads) {
      bool isNear = random() % 2;
      double base = isNear ? 1 + (part(random) - 1.5) *
                                     std::ldexp(1.0, -int(random() % 22))
                           : std::ldexp(part(random), int(exponent(random)));
      float x = static_cast<float>(base);
      if (x == 1.0F || x == 0.0F)
        continue;
      float y = static_cast<float>(power(random) / std::log2(double(x)));
      worst.first.look(static_cast<float>(hostPowOfSingle(x, y)),
                       std::pow(Long(x), Long(y)), x, y);
      double b = std::ldexp(part(random), isNear ? 0 : int(broad(random)));
      double e = wide(random) / std::log2(b);
      if (k % 16 == 0)
        worst.second.look(hostPow(b, e), std::pow(Long(b), Long(e)), b, e);
    }
  });
}

int main(int argc, char **argv) {
  int64_t stride = argc > 1 ? std::atoll(argv[1]) : 1;
  int64_t samples = argc > 2 ? std::atoll(argv[2]) : 100000000;
  if (stride < 1 || samples < 1 || argc > 3) {
    std::fprintf(stderr, "usage: measure [STRIDE [SAMPLES]]\n");
    return 2;
  }
  measureSingles(stride);
  measureDoubles(samples);
  measurePowers(samples);
  return failed;
}
