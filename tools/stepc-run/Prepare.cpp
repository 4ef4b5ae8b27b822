//===- Prepare.cpp - the arrays of a case ---------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Case.h"

#include "Zip.h"

#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace stepc::run;
using namespace mlir::step;
using namespace mlir::step::reference;

/// The storage format that the case asks for; `otherwise` if it does not.
static Format findStorage(const TensorCase &input, StringRef role,
                          StringRef state, Format otherwise) {
  auto found = input.storages.find((role + "." + state).str());
  if (found == input.storages.end())
    found = input.storages.find(role.str());
  return found == input.storages.end() ? otherwise : found->second;
}

static stepc::run::Array convert(const stepc::run::Array &array,
                                 Format storage) {
  if (array.storage == storage)
    return array;
  return toArray(toTensor(array).tensor, storage);
}

/// The array of a role of the tensor whose names begin with `prefix`.
static Expected<stepc::run::Array> pickArray(const TensorCase &input,
                                             const std::string &prefix,
                                             const ArrayMap &arrays,
                                             const std::string &role) {
  auto found = arrays.find(prefix + role);
  if (found == arrays.end())
    return makeError("array '" + prefix + role + "' is not given");
  return convert(found->second,
                 findStorage(input, role, "", found->second.storage));
}

/// Every array with the tensor's prefix must be one of those in `known`; names
/// with a further `/` are those of other cases.
static Error checkNames(const std::string &prefix, const ArrayMap &arrays,
                        ArrayRef<std::string> known) {
  auto begin = arrays.lower_bound(prefix);
  for (auto it = begin; it != arrays.end(); ++it) {
    StringRef name = it->first;
    if (!name.consume_front(prefix))
      break;
    if (!name.contains('/') && !is_contained(known, name))
      return makeError("array '" + it->first + "' is none of " +
                       join(known, ", "));
  }
  return Error::success();
}

const stepc::run::Array &PreparedTensor::getGrad(int64_t step) const {
  auto own = grads.find(step);
  return own == grads.end() ? grad : own->second;
}

bool PreparedTensor::takesPart(int64_t step) const {
  if (participates.empty())
    return true;
  return participates[std::min<size_t>(step, participates.size() - 1)];
}

/// Makes the states that are not given, and rounds all. Adds their names to
/// `known`.
static void prepareStates(const TensorCase &input, const std::string &prefix,
                          const ArrayMap &arrays,
                          ArrayRef<InitialState> initial,
                          PreparedTensor &prepared,
                          std::vector<std::string> &known) {
  bool anyGiven = false;
  std::set<std::string> created;
  for (const InitialState &state : initial) {
    known.push_back(state.name);
    auto given = arrays.find(prefix + state.name);
    bool isGiven = given != arrays.end();
    anyGiven |= isGiven;
    if (!isGiven)
      created.insert(state.name);
    Format storage = state.name == getStateName(input.master)
                         ? getStateFormat(input.master)
                         : findStorage(input, "state", state.name,
                                       isGiven ? given->second.storage
                                               : prepared.request.compute);
    prepared.states.emplace_back(state.name,
                                 isGiven ? convert(given->second, storage)
                                         : toArray(state.tensor, storage));
  }
  prepared.request.fresh = input.fresh.value_or(!anyGiven && !input.created);
  if (!input.fresh)
    prepared.request.created = input.created.value_or(created);
}

/// The arrays of one tensor of a group.
static Expected<PreparedTensor> prepareTensor(const Case &input,
                                              const TensorCase &tensor,
                                              const GroupRequest &group,
                                              const ArrayMap &arrays,
                                              OptimizerOp optimizer) {
  std::string prefix = input.prefix + tensor.prefix;
  PreparedTensor prepared;
  prepared.prefix = tensor.prefix;
  prepared.participates = tensor.participates;
  auto param = pickArray(tensor, prefix, arrays, "param");
  if (!param)
    return param.takeError();
  auto grad = pickArray(tensor, prefix, arrays, "grad");
  if (!grad)
    return grad.takeError();
  std::vector<std::string> known = {"param", "grad"};
  for (int64_t step = 0; step < input.steps; ++step) {
    std::string name = "grad:" + std::to_string(step);
    auto own = arrays.find(prefix + name);
    if (own == arrays.end())
      continue;
    known.push_back(name);
    prepared.grads[step] = convert(own->second, grad->storage);
  }
  prepared.request.group = tensor.group;
  prepared.request.rule = tensor.rule;
  prepared.request.master = tensor.master;
  prepared.request.roundingSeed = tensor.roundingSeed;
  prepared.request.count = tensor.count;
  prepared.request.compute =
      param->storage == Format::F64 ? Format::F64 : Format::F32;
  prepared.request.param = toTensor(*param);
  prepared.request.grad = toTensor(*grad);
  prepared.param = std::move(*param);
  prepared.grad = std::move(*grad);

  auto rule = findRule(optimizer, group, prepared.request);
  if (!rule)
    return rule.takeError();
  prepared.request.rule = *rule;
  auto states = makeInitialStates(optimizer, group, prepared.request);
  if (!states)
    return states.takeError();
  prepareStates(tensor, prefix, arrays, *states, prepared, known);
  if (Error error = checkNames(prefix, arrays, known))
    return error;
  return prepared;
}

Expected<PreparedCase> stepc::run::prepare(const Case &input,
                                           const ArrayMap &arrays,
                                           OptimizerOp optimizer) {
  PreparedCase prepared{
      input.mode, input.steps, input.scalars, input.groups, {}};
  if (prepared.groups.empty())
    prepared.groups.push_back(input.group);
  std::vector<TensorCase> tensors = input.tensors;
  if (tensors.empty())
    tensors.push_back(input.tensor);
  for (const TensorCase &tensor : tensors) {
    if (tensor.group >= static_cast<int64_t>(prepared.groups.size()))
      return makeError("tensor '" + tensor.prefix + "' is of group " +
                       Twine(tensor.group) + ", there are " +
                       Twine(prepared.groups.size()));
    auto one = prepareTensor(input, tensor, prepared.groups[tensor.group],
                             arrays, optimizer);
    if (!one)
      return one.takeError();
    prepared.tensors.push_back(std::move(*one));
  }
  return prepared;
}
