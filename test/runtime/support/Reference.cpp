//===- Reference.cpp - what the toy optimizer means -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Reference.h"

#include <cmath>

using namespace stepc_test;

template <typename C>
static void stepIn(ToyTensor &t, const std::vector<double> &grad,
                   const Hypers &hypers, bool maximize) {
  C lr = C(hypers.lr / (1.0 + 0.1 * double(t.count)));
  C momentum = C(t.fresh ? 0.0 : hypers.momentum);
  C keep = C(1.0 - hypers.lr * hypers.decay);
  for (size_t i = 0; i < grad.size(); ++i) {
    C g = maximize ? -C(grad[i]) : C(grad[i]);
    C first = g;
    if (hypers.momentum != 0.0) {
      C kept = momentum * C(t.buffer[i]);
      first = kept + g;
      t.buffer[i] = first;
    }
    C square = g * g;
    C delta = (square - C(t.second[i])) * C(0.25);
    C second = C(t.second[i]) + delta;
    t.second[i] = second;
    C update = first / (std::sqrt(second) + C(0.001)) * lr;
    C kept = C(t.param[i]) * keep;
    t.param[i] = roundTo(t.type, kept - update);
  }
}

void ToyTensor::step(const std::vector<double> &grad, const Hypers &hypers,
                     bool maximize) {
  ++count;
  if (type == Type::F64)
    stepIn<double>(*this, grad, hypers, maximize);
  else
    stepIn<float>(*this, grad, hypers, maximize);
  fresh = false;
}
