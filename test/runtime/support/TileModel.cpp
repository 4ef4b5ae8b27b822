//===- TileModel.cpp - tensors bound to a plan of several phases --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/TileModel.h"

using namespace stepc_test;

StepcPackage *stepc_test::getLamb() {
  static PackagePtr package = loadManifest(makeLambManifest());
  return package.get();
}

StepcPackage *stepc_test::getFactor() {
  static PackagePtr package = loadManifest(makeFactorManifest());
  return package.get();
}

StepcPackage *stepc_test::getClip() {
  static PackagePtr package = loadManifest(makeClipManifest());
  return package.get();
}

TileModel::TileModel(StepcPackage *package, std::vector<TensorSpec> theSpecs,
                     StepcPlanConfig config,
                     std::vector<std::vector<double>> hypers)
    : specs(std::move(theSpecs)), plan(makePlan(package, config)) {
  // Of what the package has, in the order of the manifest.
  const char *text;
  size_t size;
  EXPECT_EQ(STEPC_OK, stepcPackageManifest(package, &text, &size));
  size_t count = nlohmann::json::parse(text, text + size)["hypers"].size();
  for (std::vector<double> &values : hypers)
    EXPECT_EQ(STEPC_OK, stepcPlanAddGroup(plan.get(), nullptr, 0, values.data(),
                                          int64_t(count), nullptr));
  params.reserve(specs.size());
  std::vector<StepcBinding> bindings;
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorSpec &spec = specs[i];
    params.emplace_back(spec.type, spec.shape, spec.param, spec.misalignment);
    params[i].fill(1000 + uint32_t(i));
    grads.push_back(std::make_unique<Array>(spec.type, spec.shape, spec.grad,
                                            spec.misalignment));
    bindings.push_back(
        makeBinding(nullptr, params[i].dl(), grads[i]->dl(), spec.group));
    bindings.back().fresh = 1;
  }
  fillGrads(1);
  ids.resize(specs.size());
  StepcStatus status = stepcPlanBind(plan.get(), bindings.data(),
                                     int64_t(bindings.size()), ids.data());
  EXPECT_EQ(STEPC_OK, status) << stepcLastErrorMessage();
}

void TileModel::fillGrads(uint32_t seed) {
  for (size_t i = 0; i < grads.size(); ++i)
    grads[i]->fill(seed * 100000 + uint32_t(i));
}

void TileModel::setGrads(const std::vector<bool> &missing) {
  for (size_t i = 0; i < specs.size(); ++i)
    ASSERT_OK(stepcPlanSetGrad(plan.get(), ids[i],
                               missing[i] ? nullptr : grads[i]->dl()));
}

Floats TileModel::get(const Array &array) {
  Floats values;
  for (int64_t i = 0; i < array.size(); ++i)
    values.push_back(float(array.get(i)));
  return values;
}

std::vector<Floats> TileModel::getGrads() const {
  std::vector<Floats> all;
  for (const auto &grad : grads)
    all.push_back(get(*grad));
  return all;
}

Floats TileModel::getState(size_t i, const char *name) const {
  std::vector<double> values = readState(plan.get(), ids[i], name);
  return Floats(values.begin(), values.end());
}

std::string TileModel::bits(size_t i, std::vector<const char *> states) const {
  std::string all = params[i].bits();
  for (const char *name : states)
    all += stepc_test::bitsOf(getState(i, name));
  return all;
}

std::string stepc_test::bitsOf(const Floats &values) {
  return bitsOf(Type::F32, std::vector<double>(values.begin(), values.end()));
}

std::vector<TensorSpec>
stepc_test::makeSpecs(std::vector<std::vector<int64_t>> shapes, Layout param,
                      Layout grad) {
  std::vector<TensorSpec> specs;
  for (std::vector<int64_t> &shape : shapes) {
    specs.push_back({Type::F32, std::move(shape)});
    specs.back().param = param;
    specs.back().grad = grad;
  }
  return specs;
}

std::vector<StepcPlanConfig> stepc_test::getCuts() {
  return {makeConfig(1),       makeConfig(2),        makeConfig(3),
          makeConfig(5),       makeConfig(2, 1),     makeConfig(3, 5000),
          makeConfig(1, 4096), makeConfig(5, 100000)};
}
