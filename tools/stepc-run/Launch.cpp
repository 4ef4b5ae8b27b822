//===- Launch.cpp - steps of a package by the runtime -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Execute.h"

#include "Definition.h"
#include "Rows.h"
#include "dialect/RandomBits.h"

#include "llvm/Support/JSON.h"

#include <set>

using namespace llvm;
using namespace stepc::run;
using namespace mlir::step::reference;

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
  tensor.dtype.code = array.storage == Format::BF16  ? uint8_t(kDLBfloat)
                      : array.storage == Format::I16 ? uint8_t(kDLInt)
                                                     : uint8_t(kDLFloat);
  tensor.dtype.bits = static_cast<uint8_t>(8 * getElementSize(array.storage));
  tensor.dtype.lanes = 1;
  tensor.shape = array.shape.data();
  return tensor;
}

static Expected<json::Value> readManifest(StepcPackage *package) {
  const char *text;
  size_t size;
  if (stepcPackageManifest(package, &text, &size) != STEPC_OK)
    return makeRuntimeError("cannot read the manifest");
  return json::parse(StringRef(text, size));
}

/// The hyper-parameters in the manifest's order, those not named with their
/// defaults. `seed` is that of random bits.
static std::vector<double> orderHypers(const json::Object &manifest,
                                       std::map<std::string, double> given,
                                       std::optional<uint64_t> seed) {
  if (seed)
    given[mlir::step::kSeedHyper.str()] = static_cast<double>(*seed);
  std::vector<double> hypers;
  for (const json::Value &item : *manifest.getArray("hypers")) {
    const json::Object &hyper = *item.getAsObject();
    auto found = given.find(hyper.getString("name")->str());
    hypers.push_back(found != given.end() ? found->second
                                          : *hyper.getNumber("default"));
  }
  return hypers;
}

/// The compiler leaves out states that nothing in a rule depends on.
static void dropUnknownStates(const json::Object &manifest,
                              PreparedTensor &tensor) {
  std::set<std::string> known;
  for (const json::Value &item : *manifest.getArray("variants")) {
    const json::Object &variant = *item.getAsObject();
    if (*variant.getString("rule") != tensor.request.rule)
      continue;
    for (const json::Value &operand : *variant.getArray("operands"))
      if (*operand.getAsObject()->getString("role") == "state")
        known.insert(operand.getAsObject()->getString("name")->str());
  }
  erase_if(tensor.states,
           [&](const auto &state) { return !known.count(state.first); });
}

static Error addGroup(StepcPlan *plan, const json::Object &manifest,
                      const GroupRequest &group, std::optional<uint64_t> seed) {
  std::vector<double> hypers = orderHypers(manifest, group.hypers, seed);
  std::vector<StepcOption> options;
  for (const auto &[name, value] : group.options)
    options.push_back(
        {name.c_str(),
         std::visit([](auto v) { return static_cast<int64_t>(v); }, value)});
  int64_t id;
  if (stepcPlanAddGroup(plan, options.data(), options.size(), hypers.data(),
                        hypers.size(), &id) != STEPC_OK)
    return makeRuntimeError("cannot set options and hyper-parameters");
  return Error::success();
}

/// Binds the tensor's arrays to the plan; the runtime writes into them.
static Expected<int64_t> bindTensor(StepcPlan *plan, PreparedTensor &tensor) {
  DLTensor param = toDLTensor(tensor.param), grad = toDLTensor(tensor.grad);
  std::vector<DLTensor> states;
  std::vector<uint8_t> created;
  for (auto &[name, state] : tensor.states) {
    states.push_back(toDLTensor(state));
    created.push_back(tensor.request.created.count(name));
  }
  std::vector<const DLTensor *> pointers;
  for (const DLTensor &state : states)
    pointers.push_back(&state);

  StepcBinding binding{};
  binding.structSize = sizeof(binding);
  binding.group = static_cast<int64_t>(tensor.request.group);
  binding.param = &param;
  binding.grad = &grad;
  binding.states = pointers.data();
  binding.numStates = pointers.size();
  binding.count = tensor.request.count - 1;
  binding.fresh = tensor.request.fresh;
  binding.freshStates = created.data();
  int64_t id;
  if (stepcPlanBind(plan, &binding, 1, &id) != STEPC_OK)
    return makeRuntimeError("cannot bind the tensors");
  return id;
}

/// Sets the gradient that the tensor has in a step; none where it takes no
/// part.
static Error setGradient(StepcPlan *plan, int64_t id, PreparedTensor &tensor,
                         int64_t step) {
  if (tensor.participates.empty() && tensor.grads.empty())
    return Error::success();
  auto own = tensor.grads.find(step);
  DLTensor grad =
      toDLTensor(own == tensor.grads.end() ? tensor.grad : own->second);
  if (stepcPlanSetGrad(plan, id, tensor.takesPart(step) ? &grad : nullptr) !=
      STEPC_OK)
    return makeRuntimeError("cannot set a gradient");
  return Error::success();
}

/// Gives kept scalars the values that the case says.
static Error setScalars(StepcPlan *plan, const PreparedCase &prepared) {
  auto set = [&](int64_t group,
                 const std::map<std::string, double> &scalars) -> Error {
    for (const auto &[name, value] : scalars)
      if (stepcPlanSetScalar(plan, group, name.c_str(), value) != STEPC_OK)
        return makeRuntimeError("cannot set a scalar");
    return Error::success();
  };
  for (auto [index, group] : enumerate(prepared.groups)) {
    if (Error error = set(static_cast<int64_t>(index), prepared.scalars))
      return error;
    if (Error error = set(static_cast<int64_t>(index), group.scalars))
      return error;
  }
  return Error::success();
}

/// Adds a row of what `read` gives for the listed item, of the model or of each
/// group.
static Error
addItem(Rows &rows, const std::string &prefix, const json::Object &item,
        size_t numGroups,
        function_ref<StepcStatus(int64_t, const char *, double *)> read) {
  std::string name = item.getString("name")->str();
  bool perGroup = *item.getString("scope") == "group";
  std::vector<double> numbers(perGroup ? numGroups : 1);
  for (auto [group, number] : enumerate(numbers))
    if (read(static_cast<int64_t>(group), name.c_str(), &number) != STEPC_OK)
      return makeRuntimeError("cannot read what the step says");
  addRow(rows, prefix + name, numbers, perGroup);
  return Error::success();
}

/// Adds what the last step of the plan says, as interpretCase does.
static Error addLastStep(Rows &rows, StepcPlan *plan,
                         const json::Object &manifest, size_t numGroups) {
  for (const json::Value &report : *manifest.getArray("reports"))
    if (Error error = addItem(rows, "report:", *report.getAsObject(), numGroups,
                              [&](int64_t group, const char *name, double *to) {
                                return stepcPlanGetReport(plan, group, name,
                                                          to);
                              }))
      return error;
  for (const json::Value &scalar : *manifest.getArray("scalars"))
    if (Error error = addItem(rows, "scalar:", *scalar.getAsObject(), numGroups,
                              [&](int64_t group, const char *name, double *to) {
                                return stepcPlanGetScalar(plan, group, name,
                                                          to);
                              }))
      return error;
  StepcLastStep last{};
  last.structSize = sizeof(last);
  if (stepcPlanGetLastStep(plan, &last) != STEPC_OK)
    return makeRuntimeError("cannot read what the step did");
  bool maySkip = false;
  for (const json::Value &round : *manifest.getArray("rounds"))
    for (const json::Value &call : *round.getAsObject()->getArray("calls"))
      maySkip |= *call.getAsObject()->getBoolean("may_skip");
  if (maySkip)
    addRow(rows, "step:skipped", last.skipped, false);
  return Error::success();
}

Expected<ArrayMap> stepc::run::launchCase(StepcPackage *package,
                                          const PreparedCase &original) {
  PreparedCase prepared = original;
  Expected<json::Value> manifest = readManifest(package);
  if (!manifest)
    return manifest.takeError();
  StepcPlan *created;
  if (stepcPlanCreate(package, nullptr, &created) != STEPC_OK)
    return makeRuntimeError("cannot create a plan");
  PlanHandle plan(created);
  for (auto [index, group] : enumerate(prepared.groups)) {
    std::optional<uint64_t> seed;
    for (const PreparedTensor &tensor : prepared.tensors)
      if (tensor.request.group == index)
        seed = tensor.request.roundingSeed;
    if (Error error =
            addGroup(plan.get(), *manifest->getAsObject(), group, seed))
      return error;
  }
  std::vector<int64_t> ids;
  for (PreparedTensor &tensor : prepared.tensors) {
    dropUnknownStates(*manifest->getAsObject(), tensor);
    Expected<int64_t> id = bindTensor(plan.get(), tensor);
    if (!id)
      return id.takeError();
    ids.push_back(*id);
  }
  if (Error error = setScalars(plan.get(), prepared))
    return error;
  Rows rows;
  for (int64_t step = 0; step < prepared.steps; ++step) {
    for (auto [id, tensor] : zip(ids, prepared.tensors))
      if (Error error = setGradient(plan.get(), id, tensor, step))
        return error;
    if (stepcStep(plan.get()) != STEPC_OK)
      return makeRuntimeError("cannot step");
    if (Error error = addLastStep(rows, plan.get(), *manifest->getAsObject(),
                                  prepared.groups.size()))
      return error;
  }

  ArrayMap results;
  for (const auto &[name, numbers] : rows)
    results[name] = toArray(numbers, Format::F64);
  for (PreparedTensor &tensor : prepared.tensors) {
    results[tensor.prefix + "param"] = std::move(tensor.param);
    for (auto &[name, state] : tensor.states)
      results[tensor.prefix + name] = std::move(state);
  }
  return results;
}
