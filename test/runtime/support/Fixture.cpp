//===- Fixture.cpp - packages, plans and models for tests -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

#include <cstring>

using namespace stepc_test;

PackagePtr stepc_test::loadPackage(const std::string &bytes) {
  StepcPackage *package = nullptr;
  StepcStatus status =
      stepcPackageLoadBytes(bytes.data(), bytes.size(), &package);
  EXPECT_EQ(STEPC_OK, status) << stepcLastErrorMessage();
  return PackagePtr(package);
}

PackagePtr stepc_test::loadManifest(const nlohmann::json &manifest) {
  return loadPackage(makePackage(manifest, readFile(STEPC_TEST_KERNELS)));
}

InterfacePtr stepc_test::loadInterface(const std::string &text) {
  StepcInterface *interface = nullptr;
  EXPECT_EQ(STEPC_OK, stepcInterfaceLoad(text.data(), text.size(), &interface))
      << stepcLastErrorMessage();
  return InterfacePtr(interface);
}

StepcTensorQuery stepc_test::makeQuery(const char *name,
                                       const std::vector<int64_t> &shape,
                                       const int64_t *options) {
  StepcTensorQuery query = {};
  query.structSize = sizeof(query);
  query.name = name;
  query.options = options;
  query.shape = shape.data();
  query.ndim = int32_t(shape.size());
  return query;
}

DescriptionPtr
stepc_test::describe(const StepcInterface *interface,
                     const std::vector<StepcTensorQuery> &queries) {
  const StepcDescription *description = nullptr;
  EXPECT_EQ(STEPC_OK,
            stepcInterfaceDescribe(interface, queries.data(),
                                   int64_t(queries.size()), &description))
      << stepcLastErrorMessage();
  return DescriptionPtr(description);
}

StepcPackage *stepc_test::getToy() {
  static PackagePtr package = loadPackage(getToyPackage());
  return package.get();
}

PlanPtr stepc_test::makePlan(StepcPackage *package, StepcPlanConfig config) {
  config.structSize = sizeof(config);
  StepcPlan *plan = nullptr;
  StepcStatus status = stepcPlanCreate(package, &config, &plan);
  EXPECT_EQ(STEPC_OK, status) << stepcLastErrorMessage();
  return PlanPtr(plan);
}

StepcPlanConfig stepc_test::makeConfig(int numThreads, int64_t chunkElements) {
  StepcPlanConfig config = {};
  config.numThreads = numThreads;
  config.chunkElements = chunkElements;
  return config;
}

StepcBinding stepc_test::makeBinding(const char *name, const DLTensor *param,
                                     const DLTensor *grad, int64_t group) {
  StepcBinding binding = {};
  binding.structSize = sizeof(binding);
  binding.name = name;
  binding.param = param;
  binding.grad = grad;
  binding.group = group;
  return binding;
}

StepcPlanInfo stepc_test::getInfo(StepcPlan *plan) {
  StepcPlanInfo info = {};
  info.structSize = sizeof(info);
  EXPECT_EQ(STEPC_OK, stepcPlanGetInfo(plan, &info));
  return info;
}

std::vector<double> stepc_test::readState(StepcPlan *plan, int64_t id,
                                          const char *name) {
  DLTensor view;
  StepcStatus status = stepcPlanGetState(plan, id, name, &view);
  EXPECT_EQ(STEPC_OK, status) << stepcLastErrorMessage();
  int64_t elements = 1;
  for (int32_t d = 0; d < view.ndim; ++d)
    elements *= view.shape[d];
  std::vector<double> values;
  for (int64_t i = 0; i < elements; ++i) {
    int64_t offset = 0, rest = i;
    for (int32_t d = view.ndim; d-- > 0;) {
      offset += rest % view.shape[d] * view.strides[d];
      rest /= view.shape[d];
    }
    values.push_back(view.dtype.bits == 64
                         ? static_cast<double *>(view.data)[offset]
                         : static_cast<float *>(view.data)[offset]);
  }
  return values;
}

Model::Model(std::vector<TensorSpec> theSpecs, StepcPlanConfig config,
             std::vector<GroupSpec> theGroups, bool ownStates, bool special)
    : specs(std::move(theSpecs)), groups(std::move(theGroups)),
      plan(makePlan(getToy(), config)), special(special) {
  for (const GroupSpec &group : groups) {
    StepcOption option = {"maximize", group.maximize};
    const Hypers &h = group.hypers;
    double values[] = {h.lr, h.momentum, h.decay};
    EXPECT_EQ(STEPC_OK,
              stepcPlanAddGroup(plan.get(), &option, 1, values, 3, nullptr));
  }
  params.reserve(specs.size());
  states.reserve(specs.size());
  std::vector<std::vector<const DLTensor *>> stateViews(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorSpec &spec = specs[i];
    params.emplace_back(spec.type, spec.shape, spec.param, spec.misalignment);
    params[i].fill(1000 + uint32_t(i));
    ToyTensor reference;
    reference.type = spec.type;
    reference.fresh = true;
    for (int64_t k = 0; k < params[i].size(); ++k)
      reference.param.push_back(params[i].get(k));
    reference.second.assign(reference.param.size(), 0.5);
    reference.buffer.assign(reference.param.size(), 0.0);

    states.emplace_back();
    bool momentum = groups[size_t(spec.group)].hypers.momentum != 0.0;
    for (int k = 0; k < 1 + momentum; ++k) {
      states[i].emplace_back(reference.stateType(), spec.shape, spec.state,
                             spec.misalignment);
      for (int64_t e = 0; e < params[i].size(); ++e)
        states[i].back().set(e, k == 0 ? 0.5 : 0.0);
    }
    for (Array &state : states[i])
      stateViews[i].push_back(state.dl());
    references.push_back(std::move(reference));
    grads.push_back(nullptr);
  }
  makeGrads(true);
  std::vector<StepcBinding> bindings;
  for (size_t i = 0; i < specs.size(); ++i) {
    bindings.push_back(
        makeBinding(nullptr, params[i].dl(), grads[i]->dl(), specs[i].group));
    bindings.back().fresh = 1;
    if (ownStates)
      continue;
    bindings.back().states = stateViews[i].data();
    bindings.back().numStates = int64_t(stateViews[i].size());
  }
  ids.resize(specs.size());
  StepcStatus status = stepcPlanBind(plan.get(), bindings.data(),
                                     int64_t(bindings.size()), ids.data());
  EXPECT_EQ(STEPC_OK, status) << stepcLastErrorMessage();
}

void Model::makeGrads(bool move) {
  for (size_t i = 0; i < specs.size(); ++i) {
    std::unique_ptr<Array> old = std::move(grads[i]);
    if (move || !old)
      grads[i] = std::make_unique<Array>(specs[i].type, specs[i].shape,
                                         specs[i].grad, specs[i].misalignment);
    else
      grads[i] = std::move(old);
    grads[i]->fill(++seed, special);
  }
}

void Model::setGrads(const std::vector<bool> &missing) {
  for (size_t i = 0; i < specs.size(); ++i) {
    bool none = !missing.empty() && missing[i];
    StepcStatus status =
        stepcPlanSetGrad(plan.get(), ids[i], none ? nullptr : grads[i]->dl());
    ASSERT_EQ(STEPC_OK, status) << stepcLastErrorMessage();
  }
}

void Model::setHypers(int64_t group, Hypers hypers) {
  groups[size_t(group)].hypers = hypers;
  double values[] = {hypers.lr, hypers.momentum, hypers.decay};
  ASSERT_OK(stepcPlanSetHypers(plan.get(), group, values, 3));
}

std::vector<double> Model::getGrad(size_t i) const {
  std::vector<double> values;
  for (int64_t k = 0; k < grads[i]->size(); ++k)
    values.push_back(grads[i]->get(k));
  return values;
}

void Model::stepReference(const std::vector<bool> &missing) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!missing.empty() && missing[i])
      continue;
    const GroupSpec &group = groups[size_t(specs[i].group)];
    references[i].step(getGrad(i), group.hypers, group.maximize);
  }
}

void Model::step(const std::vector<bool> &missing, bool move) {
  makeGrads(move);
  setGrads(missing);
  ASSERT_OK(stepcStep(plan.get()));
  stepReference(missing);
}

void Model::check() const {
  for (size_t i = 0; i < specs.size(); ++i) {
    const ToyTensor &reference = references[i];
    EXPECT_EQ(bitsOf(specs[i].type, reference.param), params[i].bits())
        << "parameter of tensor " << i;
    EXPECT_EQ(
        bitsOf(reference.stateType(), reference.second),
        bitsOf(reference.stateType(), readState(plan.get(), ids[i], "second")))
        << "second of tensor " << i;
    if (groups[size_t(specs[i].group)].hypers.momentum != 0.0) {
      EXPECT_EQ(bitsOf(reference.stateType(), reference.buffer),
                bitsOf(reference.stateType(),
                       readState(plan.get(), ids[i], "momentum_buffer")))
          << "momentum_buffer of tensor " << i;
    }
    int64_t count = -1;
    ASSERT_OK(stepcPlanGetCount(plan.get(), ids[i], &count));
    EXPECT_EQ(reference.count, count) << "count of tensor " << i;
  }
}

std::string Model::bits() const {
  std::string all;
  for (size_t i = 0; i < specs.size(); ++i) {
    all += params[i].bits();
    all += bitsOf(Type::F64, readState(plan.get(), ids[i], "second"));
    if (groups[size_t(specs[i].group)].hypers.momentum != 0.0)
      all +=
          bitsOf(Type::F64, readState(plan.get(), ids[i], "momentum_buffer"));
  }
  return all;
}
