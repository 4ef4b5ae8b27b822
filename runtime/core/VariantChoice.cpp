//===- VariantChoice.cpp - which variant serves a tensor ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/VariantChoice.h"

#include "core/RuleChoice.h"
#include "core/Status.h"
#include "core/TensorView.h"

using namespace stepc;

namespace {

/// The storage types that a binding asks for.
struct Types {
  Storage param;
  Storage grad;
  std::vector<Storage> states;
};

Types getTypes(const StepcBinding &binding, const std::string &name) {
  Types types;
  types.param = requireStorage(*binding.param, {name, Role::Param, {}});
  DLTensor none = {};
  none.device = {kDLCPU, 0};
  none.dtype = binding.gradDtype;
  types.grad = requireStorage(binding.grad ? *binding.grad : none,
                              {name, Role::Grad, {}});
  for (int64_t k = 0; k < binding.numStates; ++k)
    types.states.push_back(requireStorage(
        *binding.states[k], {name, Role::State, std::to_string(k)}));
  return types;
}

/// Whether a parameter of the group that the rule takes can take the variant,
/// types aside.
bool isCandidate(const Manifest &manifest, const Group &group, size_t rule,
                 const Variant &variant) {
  return variant.rule == rule &&
         manifest.selectSame(variant.options, group.options);
}

std::string describeTypes(Storage param, Storage grad) {
  return std::string("param ") + getName(param) + ", grad " + getName(grad);
}

[[noreturn]] void failNoVariant(const Manifest &manifest, const Group &group,
                                size_t rule, const Types &types,
                                const std::string &name) {
  std::string wanted = describeTypes(types.param, types.grad);
  for (Storage state : types.states)
    wanted += std::string(", state ") + getName(state);
  std::string held;
  for (const Variant &variant : manifest.variants) {
    if (!isCandidate(manifest, group, rule, variant))
      continue;
    const std::vector<Operand> &operands = variant.operands;
    std::string text = describeTypes(operands[variant.param].storage,
                                     operands[variant.grad].storage);
    if (text == describeTypes(types.param, types.grad) &&
        variant.states.size() != types.states.size())
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s has %zu states, variant '%s' has %zu", name.c_str(),
           types.states.size(), variant.name.c_str(), variant.states.size());
    for (size_t k : variant.states)
      text += std::string(", state ") + getName(operands[k].storage);
    held += (held.empty() ? "" : "; ") + text;
  }
  fail(STEPC_DTYPE_MISMATCH,
       "tensor %s: the package has no variant for %s, it has: %s", name.c_str(),
       wanted.c_str(), held.empty() ? "none" : held.c_str());
}

} // namespace

size_t stepc::chooseVariant(const Manifest &manifest, const Group &group,
                            const StepcBinding &binding,
                            const std::string &name) {
  Types types = getTypes(binding, name);
  size_t rule = chooseRule(manifest, group, *binding.param, name);
  for (size_t i = 0; i < manifest.variants.size(); ++i) {
    const Variant &variant = manifest.variants[i];
    const std::vector<Operand> &operands = variant.operands;
    if (operands[variant.param].storage != types.param ||
        operands[variant.grad].storage != types.grad ||
        !isCandidate(manifest, group, rule, variant))
      continue;
    bool sameStates = types.states.size() == variant.states.size();
    for (size_t k = 0; sameStates && k < types.states.size(); ++k)
      sameStates = operands[variant.states[k]].storage == types.states[k];
    if (sameStates || !binding.states)
      return i;
  }
  failNoVariant(manifest, group, rule, types, name);
}
