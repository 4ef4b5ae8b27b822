//===- BindTensor.cpp - what a binding says of a tensor ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Binder.h"
#include "core/BoundDims.h"
#include "core/Fault.h"
#include "core/RuleChoice.h"
#include "core/StateDims.h"
#include "core/Status.h"
#include "core/VariantChoice.h"

#include <algorithm>
#include <cstddef>

using namespace stepc;

/// What a binding had in the second version and in those behind it.
static constexpr size_t kLayoutBinding = offsetof(StepcBinding, number);
static constexpr size_t kNumberBinding = offsetof(StepcBinding, freshStates);
static constexpr size_t kFreshBinding = offsetof(StepcBinding, entry);

/// The position of a tensor's first element is its number times this.
static constexpr int64_t kTensorPositions = int64_t(1) << STEPC_POSITION_BITS;
static constexpr int64_t kMaxNumber = (int64_t(1) << 23) - 1;

/// Not in the structure of older callers.
const StepcLayout *Binder::getLayout(const StepcBinding &binding) const {
  return binding.structSize < kLayoutBinding ? nullptr : binding.layout;
}

/// Nor this. Of a tensor without one it is the id's successor.
int64_t Binder::getNumber(int64_t i) const {
  const StepcBinding &binding = bindings[i];
  int64_t number = binding.structSize < kNumberBinding ? 0 : binding.number;
  return number ? number : int64_t(model.tensors.size()) + i + 1;
}

/// Nor this.
const uint8_t *Binder::getFreshStates(const StepcBinding &binding) const {
  return binding.structSize < kFreshBinding ? nullptr : binding.freshStates;
}

/// The flags that are set: those of which a state is created, and those of no
/// state where all are.
uint64_t Binder::getFresh(const StepcBinding &binding,
                          const Variant &variant) const {
  if (binding.fresh)
    return ~uint64_t(0);
  const uint8_t *created = getFreshStates(binding);
  uint64_t flags = 0;
  for (size_t flag = 0; created && flag < variant.fresh.size(); ++flag)
    for (size_t state : variant.fresh[flag])
      if (int64_t(state) < binding.numStates && created[state])
        flags |= uint64_t(1) << flag;
  return flags;
}

void Binder::requireFields(int64_t i, const std::string &name) const {
  const StepcBinding &binding = bindings[i];
  const char *text = name.c_str();
  bindings.require(i, name);
  if (binding.group < 0 || binding.group >= int64_t(model.groups.size()))
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: group %lld does not exist, the plan has %zu", text,
         static_cast<long long>(binding.group), model.groups.size());
  if (!binding.param)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s has no parameter", text);
  if (binding.count < 0)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: count %lld is negative", text,
         static_cast<long long>(binding.count));
  if (binding.count > kMaxCount)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: count %lld is above %lld", text,
         static_cast<long long>(binding.count),
         static_cast<long long>(kMaxCount));
  if (reinterpret_cast<uintptr_t>(binding.countMirror) % alignof(float))
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: countMirror is at address %p, which is no multiple of %zu",
         text, static_cast<void *>(binding.countMirror), alignof(float));
  if (binding.fresh != 0 && binding.fresh != 1)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: fresh is %d, neither 0 nor 1",
         text, int(binding.fresh));
  if (binding.reserved0 != 0)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: a reserved field is %d, not 0",
         text, int(binding.reserved0));
  int64_t number = binding.structSize < kNumberBinding ? 0 : binding.number;
  if (number < 0 || number > kMaxNumber)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: number %lld is not one from 1 to %lld", text,
         static_cast<long long>(number), static_cast<long long>(kMaxNumber));
  if (binding.numStates < 0 ||
      (binding.numStates > 0 && !binding.states && !getFormats(binding)))
    fail(STEPC_INVALID_ARGUMENT, "tensor %s has %lld states without a list",
         text, static_cast<long long>(binding.numStates));
  const uint8_t *created = getFreshStates(binding);
  for (int64_t k = 0; binding.states && k < binding.numStates; ++k) {
    if (!binding.states[k])
      fail(STEPC_INVALID_ARGUMENT, "tensor %s: state %lld is missing", text,
           static_cast<long long>(k));
    if (created && created[k] > 1)
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s: freshStates of state %lld is %d, neither 0 nor 1", text,
           static_cast<long long>(k), int(created[k]));
  }
}

void Binder::describe(int64_t i) {
  const StepcBinding &binding = bindings[i];
  NewTensor &tensor = created[i];
  tensor.name = binding.name
                    ? "'" + std::string(binding.name) + "'"
                    : std::to_string(int64_t(model.tensors.size()) + i);
  requireFields(i, tensor.name);

  BoundTensor &bound = tensor.bound;
  bound.group = int32_t(binding.group);
  tensor.empty =
      requireElements(*binding.param, {tensor.name, Role::Param, {}}) == 0;
  tensor.layout = makeLayout(model.exchange.getMesh(), getLayout(binding),
                             *binding.param, tensor.name);
  const Manifest &manifest = model.package->getManifest();
  const std::vector<int64_t> &options = model.groups[binding.group].options;
  VariantRequest request =
      makeRequest(binding, model.place, entries.getTerms(i), tensor.name);
  size_t rule = chooseRule(manifest, options, tensor.layout.shape, tensor.name);
  bound.variant = int32_t(chooseVariant(manifest, options, rule, tensor.layout,
                                        request, tensor.name));
  bound.rank = binding.param->ndim;
  setLayout(tensor);
  const Variant &variant = getVariant(tensor);
  tensor.boundExtents = getBoundExtents(manifest, manifest.rules[rule], options,
                                        tensor.layout.shape, tensor.name);
  Storage gradStorage = variant.operands[variant.grad].storage;
  bound.gradType = getDLDataType(gradStorage);
  bound.gradItemSize = uint8_t(getByteSize(gradStorage));
  bound.hasGrad = binding.grad != nullptr;
  if (const EntryTensor *entry = entries.getTensor(i)) {
    bound.elsewhere = entry->elsewhere;
    bound.hasGrad = entry->hasGrad && !entry->elsewhere;
  }
  tensor.ownsStates = !binding.states;

  readFormats(i, tensor);
  setDims(i, tensor);
  setCodes(i, tensor);
  requireNoSelfOverlap(tensor);
  requireUsable(tensor);
  setRowSize(tensor);
  setCodedSize(tensor);
  setPlaces(tensor);
}

/// Refuses addresses that steps cannot use.
void Binder::requireUsable(const NewTensor &tensor) const {
  if (tensor.empty)
    return;
  const Variant &variant = getVariant(tensor);
  for (size_t k = 0; k < variant.operands.size(); ++k)
    if (tensor.addresses[k] && variant.operands[k].role != Role::Position)
      plan.engine->requireMemory(
          tensor.addresses[k],
          {tensor.name, variant.operands[k].role, variant.operands[k].name});
}

/// A rank counts what a tensor contributes if it is the first of those that
/// have the same: over all axes but those that hold other tensors, and those of
/// dims over which it is a part. With n over "a" and m over "b", a value that
/// is a part over m alone is counted of (0, 0) and (0, 1), and laterDims of (1,
/// 0) is n.
void Binder::setLayout(NewTensor &tensor) const {
  BoundTensor &bound = tensor.bound;
  const TensorLayout &layout = tensor.layout;
  const Mesh &mesh = model.exchange.getMesh();
  bound.flat = layout.flat;
  bound.reducedRank = layout.flat ? int32_t(layout.shape.size()) : bound.rank;
  const Variant &variant = getVariant(tensor);
  const Dims &dims = model.package->getManifest().rules[variant.rule].dims;
  uint64_t cutting = 0;
  for (size_t k = 0; k < variant.layout.size(); ++k) {
    uint64_t axes = layout.getAxes(dims, variant.layout[k].dim);
    cutting |= axes;
    if (!mesh.isFirst(axes))
      bound.laterDims |= uint64_t(1) << k;
  }
  bound.isCopy = !mesh.isFirst(~(layout.distinctAxes | cutting));
  if (STEPC_FAULT("exchange-replicated-counted-everywhere"))
    bound.isCopy = false, bound.laterDims = 0;
  if (STEPC_FAULT("shard-distinct-not-counted"))
    bound.isCopy = !mesh.isFirst(~cutting);
  if (STEPC_FAULT("shard-part-counted-as-whole"))
    bound.isCopy = !mesh.isFirst(~layout.distinctAxes);
}

/// The class of the row, its dims, and how much work it is.
void Binder::setRowSize(NewTensor &tensor) const {
  BoundTensor &bound = tensor.bound;
  const Variant &variant = getVariant(tensor);
  bool tiles = variant.space == Space::Tiles;
  if (tiles)
    tensor.rowLayout.computeTiles(bound.getExtents(), bound.rank,
                                  bound.getStrides(0), variant);
  else
    tensor.rowLayout.compute(bound.getExtents(), bound.rank,
                             bound.getStrides(0),
                             int64_t(variant.operands.size()),
                             int64_t(getLeadingOperand(bound, variant)));
  bound.rowClass = 2 * bound.variant + (tensor.rowLayout.getRank() != 0);
  const RowClass &rows = model.classes[bound.rowClass];
  bound.gradWord = int32_t(rows.getOperandsWord() + int64_t(variant.grad));
  const Rule &rule = model.package->getManifest().rules[variant.rule];
  tensor.tiles = getTileShape(tiles ? rule.dims : Dims{"*"}, tensor.layout,
                              bound.getExtents(), bound.rank);
  addBoundExtents(tensor.boundExtents, tensor.tiles);
  bound.size = rows.getSize(tensor.tiles);
}

/// Copies extents, strides and addresses. A missing gradient is taken to lie as
/// the parameter does.
void Binder::setDims(int64_t i, NewTensor &tensor) const {
  const StepcBinding &binding = bindings[i];
  BoundTensor &bound = tensor.bound;
  const Variant &variant = getVariant(tensor);
  size_t operands = variant.operands.size();
  size_t words = size_t(bound.rank) * (operands + 1);
  if (variant.hasReducedOperands())
    words += size_t(bound.reducedRank) * 2 * operands;
  bound.dims.reset(new int64_t[words + 1]());
  int64_t *extents = bound.getExtents();
  std::copy_n(binding.param->shape, bound.rank, extents);
  tensor.addresses.assign(operands, 0);

  setOperand(variant.param, *binding.param, tensor);
  if (binding.grad)
    setOperand(variant.grad, *binding.grad, tensor);
  else
    std::copy_n(bound.getStrides(variant.param), bound.rank,
                bound.getStrides(variant.grad));
  for (size_t k = 0; k < variant.states.size(); ++k) {
    size_t operand = variant.states[k];
    if (variant.operands[operand].reach == Reach::Reduced)
      setReducedExtents(operand, tensor);
    if (binding.states && !bound.isCoded(operand))
      setOperand(operand, *binding.states[k], tensor);
    else
      setOwnState(operand, tensor);
  }
  for (size_t operand = 0; operand < operands; ++operand)
    if (variant.operands[operand].role == Role::Position)
      setPosition(i, operand, tensor);
}

/// Says where each element of the rank's part stands. The index in the whole
/// tensor is the same for any part and any strides.
void Binder::setPosition(int64_t i, size_t operand, NewTensor &tensor) const {
  BoundTensor &bound = tensor.bound;
  const std::vector<int64_t> &whole = tensor.layout.shape;
  const char *name = tensor.name.c_str();
  int64_t number = getNumber(i);
  if (number > kMaxNumber) // of tensors without one
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: number %lld is not one from 1 to %lld", name,
         static_cast<long long>(number), static_cast<long long>(kMaxNumber));
  int64_t elements = countElements(whole.data(), int64_t(whole.size()));
  if (elements > kTensorPositions)
    fail(STEPC_SHAPE_MISMATCH,
         "tensor %s has %lld elements, random numbers tell %lld apart", name,
         static_cast<long long>(elements),
         static_cast<long long>(kTensorPositions));
  int64_t first =
      requireFirstIndex(tensor.layout, bound.getExtents(), tensor.name);
  tensor.addresses[operand] = uintptr_t(number * kTensorPositions + first);
  if (bound.flat)
    *bound.getStrides(operand) = 1;
  else
    setRowMajor(whole.data(), bound.rank, bound.getStrides(operand));
}

/// Those beside the rank's part, or with a flat range beside the whole tensor.
void Binder::setReducedExtents(size_t operand, NewTensor &tensor) const {
  const BoundTensor &bound = tensor.bound;
  const Variant &variant = getVariant(tensor);
  const int64_t *whole = bound.flat && !STEPC_FAULT("shard-reduced-state-cut")
                             ? tensor.layout.shape.data()
                             : bound.getExtents();
  stepc::setReducedExtents(
      model.package->getManifest().rules[variant.rule],
      variant.operands[operand].dims, tensor.boundExtents, whole,
      bound.reducedRank,
      bound.getReducedExtents(variant.operands.size(), operand));
}

/// Takes an operand from the caller.
void Binder::setOperand(size_t operand, const DLTensor &given,
                        NewTensor &tensor) const {
  BoundTensor &bound = tensor.bound;
  const Variant &variant = getVariant(tensor);
  const Operand &description = variant.operands[operand];
  OperandName name{tensor.name, description.role, description.name};
  View view = makeView(bound, variant, operand, 0);
  if (description.reach == Reach::Full) {
    requireShape(given, view.extents, view.rank, name);
    tensor.addresses[operand] = requireMemory(
        given, view.extents, view.itemSize, name, bound.getStrides(operand));
    if (bound.flat)
      requireFlatDense(view, name);
    return;
  }
  requireStateShape(given, view.extents, view.rank,
                    describeShape(bound.getExtents(), bound.rank), name);
  std::vector<int64_t> strides(size_t(view.rank) + 1);
  tensor.addresses[operand] =
      requireMemory(given, view.extents, view.itemSize, name, strides.data());
  if (!isRowMajor(view.extents, view.rank, strides.data()))
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "%s has strides %s, a state with fewer dims than its parameter must "
         "be row-major without gaps",
         name.str().c_str(), describeShape(strides.data(), view.rank).c_str());
  if (description.reach == Reach::Reduced)
    setRowMajor(view.extents, view.rank,
                bound.getReducedStrides(variant.operands.size(), operand));
}

/// States to be allocated are dense, in the parameter's order where kernels
/// take any order. Of codes it is how what they stand for lies.
void Binder::setOwnState(size_t operand, NewTensor &tensor) const {
  BoundTensor &bound = tensor.bound;
  const Variant &variant = getVariant(tensor);
  View view = makeView(bound, variant, operand, 0);
  switch (variant.operands[operand].reach) {
  case Reach::Full:
    if (bound.isCoded(operand))
      return setRowMajor(view.extents, view.rank, bound.getStrides(operand));
    setDenseLike(view.extents, view.rank, bound.getStrides(variant.param),
                 bound.getStrides(operand));
    return;
  case Reach::Reduced:
    setRowMajor(view.extents, view.rank,
                bound.getReducedStrides(variant.operands.size(), operand));
    return;
  case Reach::Single:
    return;
  }
}
