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

#include <algorithm>

using namespace stepc;

namespace {

/// The storage types that a binding asks for.
struct Types {
  Storage param;
  Storage grad;
  std::vector<Storage> states;
};

Types getTypes(const StepcBinding &binding, DLDevice place,
               const std::string &name) {
  Types types;
  types.param = requireStorage(*binding.param, place, {name, Role::Param, {}});
  DLTensor none = {};
  none.device = place;
  none.dtype = binding.gradDtype;
  types.grad = requireStorage(binding.grad ? *binding.grad : none, place,
                              {name, Role::Grad, {}});
  for (int64_t k = 0; k < binding.numStates; ++k)
    types.states.push_back(requireStorage(
        *binding.states[k], place, {name, Role::State, std::to_string(k)}));
  return types;
}

/// What decides beside the types.
struct Choice {
  const Manifest &manifest;
  const Group &group;
  size_t rule;
  Dims shardedDims;
  const EntryTerms *entry;

  bool isOfRule(const Variant &variant) const {
    return variant.rule == rule &&
           manifest.selectSame(variant.options, group.options);
  }
  /// Whether elements alone matter, wherever they lie.
  bool isElementwise() const {
    return std::any_of(manifest.variants.begin(), manifest.variants.end(),
                       [&](const Variant &variant) {
                         return isOfRule(variant) && variant.layout.empty() &&
                                variant.space == Space::Elements;
                       });
  }
  bool isCandidate(const Variant &variant) const {
    return isOfRule(variant) && variant.serves(shardedDims);
  }
  bool hasTransfers(const Variant &variant) const {
    return entry ? entry->fits(variant) : variant.getTransfers().empty();
  }
};

/// Refuses dims for which there is no variant, whatever the types.
void requireServed(const Choice &choice, const std::string &name) {
  const Manifest &manifest = choice.manifest;
  std::vector<std::string> held;
  for (const Variant &variant : manifest.variants) {
    if (choice.isCandidate(variant))
      return;
    if (!choice.isOfRule(variant))
      continue;
    std::string dims = describeSharded(variant.getShardedDims());
    if (std::find(held.begin(), held.end(), dims) == held.end())
      held.push_back(dims);
  }
  // Without a variant of the rule at all, types are what is missing.
  if (held.empty())
    return;
  std::string list;
  for (const std::string &dims : held)
    list += (list.empty() ? "" : "; ") + dims;
  fail(STEPC_LAYOUT_UNSUPPORTED,
       "tensor %s is sharded in %s, the package has rule '%s' sharded in: %s",
       name.c_str(), describeSharded(choice.shardedDims).c_str(),
       manifest.rules[choice.rule].name.c_str(), list.c_str());
}

std::string describeTypes(Storage param, Storage grad) {
  return std::string("param ") + getName(param) + ", grad " + getName(grad);
}

[[noreturn]] void failNoVariant(const Choice &choice, const Types &types,
                                const std::string &name) {
  std::string wanted = describeTypes(types.param, types.grad);
  for (Storage state : types.states)
    wanted += std::string(", state ") + getName(state);
  if (choice.entry)
    wanted += ", " + describe(*choice.entry);
  std::string held;
  for (const Variant &variant : choice.manifest.variants) {
    if (!choice.isCandidate(variant))
      continue;
    const std::vector<Operand> &operands = variant.operands;
    std::string text = describeTypes(operands[variant.param].storage,
                                     operands[variant.grad].storage);
    if (text == describeTypes(types.param, types.grad) && !choice.entry &&
        choice.hasTransfers(variant) &&
        variant.states.size() != types.states.size())
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s has %zu states, variant '%s' has %zu", name.c_str(),
           types.states.size(), variant.name.c_str(), variant.states.size());
    for (size_t k : variant.states)
      text += std::string(", state ") + getName(operands[k].storage);
    if (std::string own = describeTransfers(variant.getTransfers());
        !own.empty())
      text += ", " + own;
    held += (held.empty() ? "" : "; ") + text;
  }
  fail(STEPC_DTYPE_MISMATCH,
       "tensor %s: the package has no variant for %s, it has: %s", name.c_str(),
       wanted.c_str(), held.empty() ? "none" : held.c_str());
}

} // namespace

size_t stepc::chooseVariant(const Manifest &manifest, const Group &group,
                            const StepcBinding &binding, DLDevice place,
                            const TensorLayout &layout, const EntryTerms *entry,
                            const std::string &name) {
  Types types = getTypes(binding, place, name);
  size_t rule = chooseRule(manifest, group, layout.shape, name);
  const Dims &dims = manifest.rules[rule].dims;
  Choice choice{manifest, group, rule, layout.getShardedDims(dims), entry};
  if (!choice.isElementwise())
    requireShardable(layout, manifest.rules[rule], name);
  requireServed(choice, name);
  for (size_t i = 0; i < manifest.variants.size(); ++i) {
    const Variant &variant = manifest.variants[i];
    const std::vector<Operand> &operands = variant.operands;
    if (operands[variant.param].storage != types.param ||
        operands[variant.grad].storage != types.grad ||
        !choice.isCandidate(variant) || !choice.hasTransfers(variant))
      continue;
    bool sameStates = types.states.size() == variant.states.size();
    for (size_t k = 0; sameStates && k < types.states.size(); ++k)
      sameStates = operands[variant.states[k]].storage == types.states[k];
    if (sameStates || !binding.states)
      return i;
  }
  failNoVariant(choice, types, name);
}
