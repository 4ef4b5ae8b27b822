//===- RealPackageTest.cpp - the compiler's AdamW against its formulas ----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs on the package that the environment variable STEPC_TEST_PACKAGE names.
// The interpreter is the compiler's oracle; these are the same formulas once
// more, in plain C++, so that the runtime is tested with real kernels too.
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

#include <cmath>
#include <cstdlib>

using namespace stepc_test;

namespace {

struct Adam {
  double lr = 0.01, beta1 = 0.85, beta2 = 0.97, eps = 1e-6, decay = 0.05;
};

double power(double x, int64_t n) {
  double result = 1.0;
  for (; n > 0; n >>= 1, x *= x)
    if (n & 1)
      result *= x;
  return result;
}

/// frontend/optimizers/adamw.mlir on one tensor.
template <typename C>
void stepAdam(const Adam &h, int64_t t, Type type, std::vector<double> &param,
              const std::vector<double> &grad, std::vector<double> &first,
              std::vector<double> &second) {
  C keep = C(1.0 - h.lr * h.decay);
  C w1 = C(1.0 - h.beta1), w2 = C(1.0 - h.beta2), beta2 = C(h.beta2);
  double root2 = std::sqrt(1.0 - power(h.beta2, t));
  C alpha = C(h.lr / (1.0 - power(h.beta1, t)) * root2);
  C eps = C(h.eps * root2);
  for (size_t i = 0; i < param.size(); ++i) {
    C g = C(grad[i]), m = C(first[i]), v = C(second[i]);
    C decayed = C(param[i]) * keep;
    C dm = w1 * (g - m); // w1 is below a half
    m = m + dm;
    C kept = v * beta2;
    C share = g * w2 * g;
    v = kept + share;
    C denominator = std::sqrt(v) + eps;
    C update = m / denominator * alpha;
    param[i] = roundTo(type, decayed - update);
    first[i] = m;
    second[i] = v;
  }
}

struct AdamTensor {
  AdamTensor(Type type, std::vector<int64_t> shape, Layout layout,
             int64_t misalignment)
      : type(type), param(type, shape, layout, misalignment),
        grad(type, shape, Layout::RowMajor, misalignment) {
    param.fill(uint32_t(shape.empty() ? 1 : shape[0]));
    for (int64_t i = 0; i < param.size(); ++i)
      expected.push_back(param.get(i));
    first.assign(expected.size(), 0.0);
    second.assign(expected.size(), 0.0);
  }

  void step(const Adam &adam, int64_t t) {
    std::vector<double> gradient;
    for (int64_t i = 0; i < grad.size(); ++i)
      gradient.push_back(grad.get(i));
    if (type == Type::F64)
      stepAdam<double>(adam, t, type, expected, gradient, first, second);
    else
      stepAdam<float>(adam, t, type, expected, gradient, first, second);
  }

  Type type;
  Array param, grad;
  std::vector<double> expected, first, second;
};

TEST(RealPackage, adamwBitForBit) {
  const char *path = std::getenv("STEPC_TEST_PACKAGE");
  if (!path)
    GTEST_SKIP() << "STEPC_TEST_PACKAGE names no package";
  StepcPackage *loaded = nullptr;
  ASSERT_OK(stepcPackageLoad(path, &loaded));
  PackagePtr package(loaded);
  Adam adam;
  const double hypers[] = {adam.lr, adam.beta1, adam.beta2, adam.eps,
                           adam.decay};
  for (int threads : {1, 3}) {
    PlanPtr plan = makePlan(loaded, makeConfig(threads, threads == 1 ? 0 : 37));
    ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, hypers, 5, nullptr));
    std::vector<std::unique_ptr<AdamTensor>> tensors;
    std::vector<StepcBinding> bindings;
    for (Type type : {Type::F32, Type::F64, Type::BF16}) {
      for (int64_t n = 0; n <= 130; ++n)
        tensors.push_back(std::make_unique<AdamTensor>(
            type, std::vector<int64_t>{n}, Layout::RowMajor, n % 16));
      for (Layout layout : {Layout::ColumnMajor, Layout::Padded, Layout::Sliced,
                            Layout::Backwards})
        tensors.push_back(std::make_unique<AdamTensor>(
            type, std::vector<int64_t>{11, 5, 3}, layout, 1));
      tensors.push_back(std::make_unique<AdamTensor>(
          type, std::vector<int64_t>{}, Layout::RowMajor, 0));
    }
    for (auto &tensor : tensors)
      bindings.push_back(
          makeBinding(nullptr, tensor->param.dl(), tensor->grad.dl()));
    ASSERT_OK(stepcPlanBind(plan.get(), bindings.data(),
                            int64_t(bindings.size()), nullptr));
    for (int64_t t = 1; t <= 4; ++t) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        tensors[i]->grad.fill(uint32_t(t * 1000) + uint32_t(i), t == 2);
        tensors[i]->step(adam, t);
      }
      ASSERT_OK(stepcStep(plan.get()));
      for (size_t i = 0; i < tensors.size(); ++i)
        ASSERT_EQ(bitsOf(tensors[i]->type, tensors[i]->expected),
                  tensors[i]->param.bits())
            << "tensor " << i << ", step " << t;
    }
  }
}

} // namespace
