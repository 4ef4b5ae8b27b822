//===- VariantChoice.cpp - which variant serves a tensor ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/VariantChoice.h"

#include "core/FieldReader.h"
#include "core/StateCodes.h"
#include "core/Status.h"
#include "core/TensorView.h"

#include "stepc/codes.h"

#include <algorithm>
#include <utility>

using namespace stepc;

namespace {

/// What decides beside the types.
struct Choice {
  const Manifest &manifest;
  const std::vector<int64_t> &options;
  size_t rule;
  Dims shardedDims;
  const VariantRequest &request;

  bool isOfRule(const Variant &variant) const {
    return variant.rule == rule &&
           manifest.selectSame(variant.options, options);
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
    return request.entry ? request.entry->fits(variant)
                         : request.anyEntry || variant.getTransfers().empty();
  }
  /// `rounds`: whether the one that is kept is to be rounded by random bits.
  bool fits(const Variant &variant, bool rounds) const;

private:
  bool hasStates(const Variant &variant) const;
  bool keeps(const Variant &variant, const std::string &master,
             bool rounds) const;
};

bool Choice::hasStates(const Variant &variant) const {
  if (!request.states)
    return true;
  return std::equal(request.states->begin(), request.states->end(),
                    variant.states.begin(), variant.states.end(),
                    [&](Storage storage, size_t operand) {
                      return variant.operands[operand].storage == storage;
                    });
}

/// What a variant has beside the states that its rule declares is the master.
bool Choice::keeps(const Variant &variant, const std::string &master,
                   bool rounds) const {
  const std::vector<DeclaredState> &declared = manifest.rules[rule].states;
  bool hasMaster = false;
  for (const Operand &operand : variant.operands) {
    if (operand.role != Role::State ||
        findName(declared, operand.name) != declared.size())
      continue;
    if (operand.name != master)
      return false;
    hasMaster = true;
  }
  return variant.rounds == rounds && hasMaster == !master.empty();
}

bool Choice::fits(const Variant &variant, bool rounds) const {
  const std::vector<Operand> &operands = variant.operands;
  return operands[variant.param].storage == request.param &&
         operands[variant.grad].storage == request.grad &&
         isCandidate(variant) && hasTransfers(variant) && hasStates(variant) &&
         (!request.kept || keeps(variant, request.kept->master, rounds));
}

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

[[noreturn]] void failNoVariant(const Choice &choice, const std::string &name) {
  const VariantRequest &request = choice.request;
  std::string types = describeTypes(request.param, request.grad);
  std::string wanted = types, held;
  size_t numStates = request.states ? request.states->size() : 0;
  for (size_t i = 0; i < numStates; ++i)
    wanted += std::string(", state ") + getName((*request.states)[i]);
  if (request.kept && !request.kept->master.empty())
    wanted += ", state '" + request.kept->master + "'";
  if (request.entry)
    wanted += ", " + describe(*request.entry);
  for (const Variant &variant : choice.manifest.variants) {
    if (!choice.isCandidate(variant))
      continue;
    const std::vector<Operand> &operands = variant.operands;
    std::string text = describeTypes(operands[variant.param].storage,
                                     operands[variant.grad].storage);
    if (text == types && request.states && !request.entry &&
        choice.hasTransfers(variant) && variant.states.size() != numStates)
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s has %zu states, variant '%s' has %zu", name.c_str(),
           numStates, variant.name.c_str(), variant.states.size());
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

VariantRequest stepc::makeRequest(const StepcBinding &binding, DLDevice place,
                                  const EntryTerms *entry,
                                  const std::string &name) {
  VariantRequest request;
  request.param =
      requireStorage(*binding.param, place, {name, Role::Param, {}});
  DLTensor none = {};
  none.device = place;
  none.dtype = binding.gradDtype;
  request.grad = requireStorage(binding.grad ? *binding.grad : none, place,
                                {name, Role::Grad, {}});
  request.entry = entry;
  if (binding.states)
    request.states.emplace();
  const int32_t *formats = getFormats(binding);
  for (int64_t k = 0; binding.states && k < binding.numStates; ++k) {
    std::string state = std::to_string(k);
    OperandName own{name, Role::State, state};
    if (!formats || formats[k] == STEPC_STATE_PLAIN) {
      request.states->push_back(requireStorage(*binding.states[k], place, own));
      continue;
    }
    requireCodes(*binding.states[k], formats[k], place, own);
    request.states->push_back(Storage::F32);
  }
  return request;
}

size_t stepc::chooseVariant(const Manifest &manifest,
                            const std::vector<int64_t> &options, size_t rule,
                            const TensorLayout &layout,
                            const VariantRequest &request,
                            const std::string &name) {
  const Dims &dims = manifest.rules[rule].dims;
  Choice choice{manifest, options, rule, layout.getShardedDims(dims), request};
  if (!choice.isElementwise())
    requireShardable(layout, manifest.rules[rule], name);
  requireServed(choice, name);
  // Where all that is bf16 has fewer dims than the parameter, no variant rounds
  // by random bits.
  bool rounds = request.kept && request.kept->rounds;
  do {
    for (size_t i = 0; i < manifest.variants.size(); ++i)
      if (choice.fits(manifest.variants[i], rounds))
        return i;
  } while (std::exchange(rounds, false));
  failNoVariant(choice, name);
}
