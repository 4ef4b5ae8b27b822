//===- StridedTest.cpp - tensors that are not contiguous, bit for bit -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

#include <random>

using namespace stepc_test;

namespace {

constexpr Layout kWritable[] = {Layout::RowMajor, Layout::ColumnMajor,
                                Layout::Padded, Layout::Sliced,
                                Layout::Backwards};

TEST(Strided, layoutsOfParameterAndGradient) {
  std::vector<TensorSpec> specs;
  for (Layout param : kWritable)
    for (Layout grad : {Layout::RowMajor, Layout::ColumnMajor, Layout::Padded,
                        Layout::Sliced, Layout::Backwards, Layout::Expanded})
      specs.push_back({Type::F32, {5, 7, 3}, param, grad});
  for (int64_t chunk : {0, 1, 10}) {
    Model model(specs, makeConfig(2, chunk));
    for (int i = 0; i < 3; ++i)
      model.step();
    model.check();
  }
}

TEST(Strided, layoutsOfStates) {
  std::vector<TensorSpec> specs;
  for (Layout state : kWritable)
    for (Type type : {Type::F32, Type::F64, Type::BF16})
      specs.push_back(
          {type, {6, 4}, Layout::RowMajor, Layout::ColumnMajor, state});
  Model model(specs, {}, {{}}, /*ownStates=*/false);
  for (int i = 0; i < 3; ++i)
    model.step();
  model.check();
}

TEST(Strided, misaligned) {
  std::vector<TensorSpec> specs;
  for (int64_t misalignment = 0; misalignment < 16; ++misalignment)
    for (Type type : {Type::F32, Type::F64, Type::BF16}) {
      specs.push_back({type, {9, 5}, Layout::Padded, Layout::ColumnMajor});
      specs.back().misalignment = misalignment;
    }
  Model model(specs);
  for (int i = 0; i < 2; ++i)
    model.step();
  model.check();
}

TEST(Strided, anyRank) {
  std::vector<TensorSpec> specs;
  for (const std::vector<int64_t> &shape :
       std::vector<std::vector<int64_t>>{{},
                                         {1},
                                         {8},
                                         {1, 6, 1},
                                         {4, 0, 3},
                                         {2, 3, 2, 2, 3},
                                         {2, 2, 2, 2, 2, 2, 2, 2}})
    for (Layout param : {Layout::Padded, Layout::Sliced})
      specs.push_back({Type::F32, shape, param, Layout::ColumnMajor});
  Model model(specs);
  for (int i = 0; i < 3; ++i)
    model.step();
  model.check();
}

/// Layouts of the gradient that change from step to step, together with
/// missing ones: rows change between the kernels, and tables grow.
TEST(Strided, gradientsThatChangeTheirLayout) {
  std::vector<TensorSpec> specs;
  for (int64_t i = 0; i < 12; ++i)
    specs.push_back({Type::F32, {2 + i, 3, 2}, kWritable[i % 4]});
  Model model(specs);
  std::mt19937 random(3);
  constexpr Layout all[] = {Layout::RowMajor,  Layout::ColumnMajor,
                            Layout::Padded,    Layout::Sliced,
                            Layout::Backwards, Layout::Expanded};
  for (int step = 0; step < 30; ++step) {
    std::vector<bool> missing;
    for (TensorSpec &spec : model.specs) {
      if (random() % 3 == 0)
        spec.grad = all[random() % 6];
      missing.push_back(random() % 4 == 0);
    }
    model.specs[random() % specs.size()].grad = Layout::RowMajor;
    model.step(missing);
    model.check();
  }
}

/// A gradient may come without strides when it is row-major, and with any
/// strides where an extent is 1.
TEST(Strided, stridesThatMeanNothing) {
  Model model({{Type::F32, {1, 6}}, {Type::F32, {6, 1}}});
  model.makeGrads(true);
  std::vector<int64_t> odd[] = {{12345, 1}, {1, -77}};
  for (int i = 0; i < 2; ++i) {
    DLTensor grad = *model.grads[size_t(i)]->dl();
    grad.strides = odd[i].data();
    ASSERT_OK(stepcPlanSetGrad(model.plan.get(), i, &grad));
  }
  ASSERT_OK(stepcStep(model.plan.get()));
  model.stepReference();
  model.step();
  model.check();
}

/// A bound layout that is not row-major is not meant by a gradient without
/// strides.
TEST(Strided, noStridesMeanRowMajor) {
  Model model({{Type::F32, {4, 3}, Layout::RowMajor, Layout::ColumnMajor}});
  model.step();
  model.specs[0].grad = Layout::RowMajor;
  model.step();
  model.specs[0].grad = Layout::ColumnMajor;
  model.step();
  model.check();
}

/// When all operands lie the same way the order does not matter, and the
/// contiguous kernel serves them: nothing is left for the strided one, which
/// this package lacks.
TEST(Strided, sameOrderIsContiguous) {
  nlohmann::json manifest = makeToyManifest();
  for (nlohmann::json &variant : manifest["variants"])
    variant["schedule"][0]["strided_kernel"] = "toy_scalars";
  PackagePtr package = loadManifest(manifest);
  PlanPtr plan = makePlan(package.get());
  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  Array param(Type::F32, {4, 6}, Layout::ColumnMajor),
      grad(Type::F32, {4, 6}, Layout::ColumnMajor);
  Array plainParam(Type::F32, {4, 6}), plainGrad(Type::F32, {4, 6});
  for (Array *p : {&param, &plainParam})
    p->fill(1);
  for (Array *g : {&grad, &plainGrad})
    g->fill(2);
  StepcBinding bindings[] = {makeBinding("t", param.dl(), grad.dl()),
                             makeBinding("p", plainParam.dl(), plainGrad.dl())};
  ASSERT_OK(stepcPlanBind(plan.get(), bindings, 2, nullptr));
  ASSERT_OK(stepcStep(plan.get()));
  EXPECT_EQ(plainParam.bits(), param.bits());
}

} // namespace
