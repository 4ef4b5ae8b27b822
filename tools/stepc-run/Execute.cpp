//===- Execute.cpp - runs cases -------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Execute.h"

#include "Definition.h"
#include "Zip.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

using namespace llvm;
using namespace stepc::run;
using namespace mlir::step;
using namespace mlir::step::reference;

//===----------------------------------------------------------------------===//
// The interpreter
//===----------------------------------------------------------------------===//

Expected<ArrayMap> stepc::run::interpretCase(OptimizerOp optimizer,
                                             const PreparedCase &prepared) {
  Request request = prepared.request;
  for (const auto &[name, state] : prepared.states)
    request.states[name] = toTensor(state);
  for (int64_t step = 0; step < prepared.steps; ++step) {
    Expected<Outcome> outcome = interpret(optimizer, request);
    if (!outcome)
      return outcome.takeError();
    request.param.tensor = std::move(outcome->param);
    for (auto &[name, state] : request.states)
      state.tensor = std::move(outcome->states[name]);
    ++request.count;
    request.fresh = false;
  }

  bool exact = request.mode == Mode::Exact;
  auto storageOf = [&](const StoredTensor &stored) {
    return exact ? stored.storage : Format::F64;
  };
  ArrayMap results;
  results["param"] = toArray(request.param.tensor, storageOf(request.param));
  for (const auto &[name, state] : request.states)
    results[name] = toArray(state.tensor, storageOf(state));
  return results;
}

//===----------------------------------------------------------------------===//
// The runtime
//===----------------------------------------------------------------------===//

namespace {
struct PlanDeleter {
  void operator()(StepcPlan *plan) const { stepcPlanDestroy(plan); }
};
using PlanHandle = std::unique_ptr<StepcPlan, PlanDeleter>;
} // namespace

/// The array as the runtime takes it; borrows shape and bytes.
static DLTensor toDLTensor(stepc::run::Array &array) {
  DLTensor tensor{};
  tensor.data = array.bytes.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = static_cast<int32_t>(array.shape.size());
  tensor.dtype.code = array.storage == Format::BF16
                          ? static_cast<uint8_t>(kDLBfloat)
                          : static_cast<uint8_t>(kDLFloat);
  tensor.dtype.bits = static_cast<uint8_t>(8 * getElementSize(array.storage));
  tensor.dtype.lanes = 1;
  tensor.shape = array.shape.data();
  return tensor;
}

/// The hyper-parameters in the manifest's order, those not named with their
/// defaults.
static Expected<std::vector<double>>
orderHypers(StepcPackage *package, const std::map<std::string, double> &given) {
  const char *text;
  size_t size;
  if (stepcPackageManifest(package, &text, &size) != STEPC_OK)
    return makeRuntimeError("cannot read the manifest");
  Expected<json::Value> manifest = json::parse(StringRef(text, size));
  if (!manifest)
    return manifest.takeError();
  std::vector<double> hypers;
  for (const json::Value &item : *manifest->getAsObject()->getArray("hypers")) {
    const json::Object &hyper = *item.getAsObject();
    auto found = given.find(hyper.getString("name")->str());
    hypers.push_back(found != given.end() ? found->second
                                          : *hyper.getNumber("default"));
  }
  return hypers;
}

static Expected<int64_t> addGroup(StepcPlan *plan, StepcPackage *package,
                                  const Request &request) {
  Expected<std::vector<double>> hypers = orderHypers(package, request.hypers);
  if (!hypers)
    return hypers.takeError();
  std::vector<StepcOption> options;
  for (const auto &[name, value] : request.options)
    options.push_back({name.c_str(), value});
  int64_t group;
  if (stepcPlanAddGroup(plan, options.data(), options.size(), hypers->data(),
                        hypers->size(), &group) != STEPC_OK)
    return makeRuntimeError("cannot set options and hyper-parameters");
  return group;
}

/// Binds the case's arrays to the plan; the runtime writes into them.
static Error bindCase(StepcPlan *plan, int64_t group, PreparedCase &prepared) {
  DLTensor param = toDLTensor(prepared.param), grad = toDLTensor(prepared.grad);
  std::vector<DLTensor> states;
  for (auto &[name, state] : prepared.states)
    states.push_back(toDLTensor(state));
  std::vector<const DLTensor *> pointers;
  for (const DLTensor &state : states)
    pointers.push_back(&state);

  StepcBinding binding{};
  binding.structSize = sizeof(binding);
  binding.group = group;
  binding.param = &param;
  binding.grad = &grad;
  binding.states = pointers.data();
  binding.numStates = pointers.size();
  binding.count = prepared.request.count - 1;
  binding.fresh = prepared.request.fresh;
  if (stepcPlanBind(plan, &binding, 1, nullptr) != STEPC_OK)
    return makeRuntimeError("cannot bind the tensors");
  return Error::success();
}

Expected<ArrayMap> stepc::run::launchCase(StepcPackage *package,
                                          const PreparedCase &original) {
  PreparedCase prepared = original;
  StepcPlan *created;
  if (stepcPlanCreate(package, nullptr, &created) != STEPC_OK)
    return makeRuntimeError("cannot create a plan");
  PlanHandle plan(created);
  Expected<int64_t> group = addGroup(plan.get(), package, prepared.request);
  if (!group)
    return group.takeError();
  if (Error error = bindCase(plan.get(), *group, prepared))
    return error;
  for (int64_t step = 0; step < prepared.steps; ++step)
    if (stepcStep(plan.get()) != STEPC_OK)
      return makeRuntimeError("cannot step");

  ArrayMap results;
  results["param"] = std::move(prepared.param);
  for (auto &[name, state] : prepared.states)
    results[name] = std::move(state);
  return results;
}

//===----------------------------------------------------------------------===//
// Comparison
//===----------------------------------------------------------------------===//

static bool areEqual(double lhs, double rhs) {
  return (std::isnan(lhs) && std::isnan(rhs)) ||
         bit_cast<uint64_t>(lhs) == bit_cast<uint64_t>(rhs);
}

bool stepc::run::compareResults(StringRef prefix, const ArrayMap &interpreted,
                                const ArrayMap &compiled, raw_ostream &out) {
  bool equal = true;
  for (const auto &[name, array] : interpreted) {
    Tensor expected = toTensor(array).tensor;
    Tensor actual = toTensor(compiled.at(name)).tensor;
    size_t count = 0, first = 0;
    for (size_t index = expected.elements.size(); index-- > 0;) {
      if (areEqual(expected.elements[index], actual.elements[index]))
        continue;
      ++count;
      first = index;
    }
    if (count == 0)
      continue;
    equal = false;
    double left = expected.elements[first], right = actual.elements[first];
    out << prefix << name << ": " << count << " of " << expected.elements.size()
        << " elements differ, first element " << first << ": interpreted "
        << format("%.17g (%a)", left, left) << ", compiled "
        << format("%.17g (%a)", right, right) << "\n";
  }
  return equal;
}
