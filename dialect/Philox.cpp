//===- Philox.cpp - the random generator as code --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Philox4x32-10 of J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: Parallel
// Random Numbers: As Easy as 1, 2, 3. SC 2011.
//
//===----------------------------------------------------------------------===//
#include "dialect/Philox.h"

#include "dialect/RandomBits.h"

using namespace mlir;
using namespace mlir::step;

std::array<Value, 4> mlir::step::emitPhilox(const WordEmitter &w,
                                            std::array<Value, 4> counter,
                                            Value key) {
  auto [c0, c1, c2, c3] = counter;
  Value lower = w.constantWord(0xffffffff);
  Value k0 = key, k1 = w.shiftRight(key, 32);
  Value factor0 = w.constantWord(Philox::kFactor0);
  Value factor1 = w.constantWord(Philox::kFactor1);
  for (int number = 0; number < Philox::kRounds; ++number) {
    if (number) {
      k0 = w.add(k0, w.constantWord(Philox::kWeyl0));
      k1 = w.add(k1, w.constantWord(Philox::kWeyl1));
    }
    Value even = w.mul(w.both(c0, lower), factor0);
    Value odd = w.mul(w.both(c2, lower), factor1);
    c0 = w.differ(w.differ(w.shiftRight(odd, 32), c1), k0);
    c2 = w.differ(w.differ(w.shiftRight(even, 32), c3), k1);
    c1 = odd;
    c3 = even;
  }
  return {c0, c1, c2, c3};
}
