//===- regression.cpp - a linear regression, trained by the C ABI alone ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fits y = W x + b to points that a known W and b made, with whatever optimizer
// the package has, its defaults, and clipping where the package clips:
//
//   stepc frontend/optimizers/adamw.mlir -o adamw.stepc
//   c++ -std=c++17 -Iruntime/include tools/examples/regression.cpp
//       -Lbuild/lib -lstepc_runtime -o regression
//   ./regression adamw.stepc
//
//===----------------------------------------------------------------------===//

#include "stepc/stepc.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {
constexpr int64_t kInputs = 12, kOutputs = 5, kPoints = 64;

void check(StepcStatus status) {
  if (status == STEPC_OK)
    return;
  std::fprintf(stderr, "regression: %s: %s\n", stepcStatusString(status),
               stepcLastErrorMessage());
  std::exit(1);
}

/// Numbers from -1 to 1, the same in every run.
class Numbers {
public:
  float next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<int32_t>(state >> 32)) /
           2147483648.0f;
  }
  std::vector<float> make(int64_t count) {
    std::vector<float> values(count);
    for (float &value : values)
      value = next();
    return values;
  }

private:
  uint64_t state = 1;
};

/// A parameter with its gradient.
struct Parameter {
  std::vector<int64_t> shape;
  std::vector<float> values, gradient;

  explicit Parameter(std::vector<int64_t> dims) : shape(std::move(dims)) {
    int64_t count = 1;
    for (int64_t extent : shape)
      count *= extent;
    values.assign(count, 0.0f);
    gradient.assign(count, 0.0f);
  }

  DLTensor describe(std::vector<float> &data) {
    DLTensor tensor{};
    tensor.data = data.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = shape.data();
    return tensor;
  }
};

/// W x + b for one point.
std::vector<float> predict(const Parameter &weight, const Parameter &bias,
                           const float *x) {
  std::vector<float> out(bias.values);
  for (int64_t i = 0; i < kOutputs; ++i)
    for (int64_t j = 0; j < kInputs; ++j)
      out[i] += weight.values[i * kInputs + j] * x[j];
  return out;
}

/// The mean of the squared errors; their gradients into the parameters'.
double differentiate(Parameter &weight, Parameter &bias,
                     const std::vector<float> &xs,
                     const std::vector<float> &ys) {
  weight.gradient.assign(weight.gradient.size(), 0.0f);
  bias.gradient.assign(bias.gradient.size(), 0.0f);
  double loss = 0.0;
  for (int64_t point = 0; point < kPoints; ++point) {
    const float *x = &xs[point * kInputs];
    std::vector<float> out = predict(weight, bias, x);
    for (int64_t i = 0; i < kOutputs; ++i) {
      float error = out[i] - ys[point * kOutputs + i];
      loss += static_cast<double>(error) * error / (kPoints * kOutputs);
      float slope = 2.0f * error / (kPoints * kOutputs);
      bias.gradient[i] += slope;
      for (int64_t j = 0; j < kInputs; ++j)
        weight.gradient[i * kInputs + j] += slope * x[j];
    }
  }
  return loss;
}
} // namespace

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: regression PACKAGE\n");
    return 2;
  }
  StepcPackage *package = nullptr;
  StepcPlan *plan = nullptr;
  int64_t group = 0;
  check(stepcPackageLoad(argv[1], &package));
  check(stepcPlanCreate(package, nullptr, &plan));
  check(stepcPlanAddGroup(plan, nullptr, 0, nullptr, 0, &group));

  Numbers numbers;
  Parameter truth({kOutputs, kInputs}), shift({kOutputs});
  truth.values = numbers.make(kOutputs * kInputs);
  shift.values = numbers.make(kOutputs);
  std::vector<float> xs = numbers.make(kPoints * kInputs), ys;
  for (int64_t point = 0; point < kPoints; ++point)
    for (float y : predict(truth, shift, &xs[point * kInputs]))
      ys.push_back(y);

  Parameter weight({kOutputs, kInputs}), bias({kOutputs});
  DLTensor tensors[] = {
      weight.describe(weight.values), weight.describe(weight.gradient),
      bias.describe(bias.values), bias.describe(bias.gradient)};
  StepcBinding bindings[2] = {};
  const char *names[] = {"weight", "bias"};
  for (int i = 0; i < 2; ++i) {
    bindings[i].structSize = sizeof(StepcBinding);
    bindings[i].name = names[i];
    bindings[i].group = group;
    bindings[i].param = &tensors[2 * i];
    bindings[i].grad = &tensors[2 * i + 1];
    bindings[i].fresh = 1;
  }
  check(stepcPlanBind(plan, bindings, 2, nullptr));

  for (int step = 0; step < 3000; ++step) {
    double loss = differentiate(weight, bias, xs, ys);
    if (step == 0)
      std::printf("first loss %.3e\n", loss);
    check(stepcStep(plan));
  }
  std::printf("last loss %.3e\n", differentiate(weight, bias, xs, ys));
  double furthest = 0.0;
  for (size_t i = 0; i < weight.values.size(); ++i)
    furthest =
        std::fmax(furthest, std::fabs(weight.values[i] - truth.values[i]));
  std::printf("furthest weight %.3e\n", furthest);
  stepcPlanDestroy(plan);
  stepcPackageDestroy(package);
  return 0;
}
