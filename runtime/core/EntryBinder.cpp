//===- EntryBinder.cpp - bindings of tensors with an entry ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/EntryBinder.h"

#include "core/Status.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

using namespace stepc;

BindingList stepc::makeBindingList(const StepcBinding *bindings, int64_t size) {
  if (size < 0 || (size > 0 && !bindings))
    fail(STEPC_INVALID_ARGUMENT, "%lld bindings were given, without values",
         static_cast<long long>(size));
  // The first version had no layout.
  return {bindings, size, offsetof(StepcBinding, layout), "StepcBinding",
          "binding"};
}

bool EntryBinder::any() const {
  // Older callers do not have the field.
  if (size == 0 || given[0].structSize < sizeof(StepcBinding))
    return false;
  for (int64_t i = 0; i < size; ++i)
    if (given[i].structSize == given[0].structSize && given[i].entry)
      return true;
  return false;
}

const EntryTensor *EntryBinder::getTensor(int64_t i) const {
  int64_t entry = entryOf.empty() ? -1 : entryOf[size_t(i)];
  return entry < 0 ? nullptr : &made.tensors[size_t(entry)];
}

const EntryTerms *EntryBinder::getTerms(int64_t i) const {
  int64_t entry = entryOf.empty() ? -1 : entryOf[size_t(i)];
  return entry < 0 ? nullptr : &terms[size_t(entry)];
}

void EntryBinder::cut(BucketSizes bytes, int64_t *begin, int64_t *end,
                      int64_t *bucket) {
  for (int64_t i = 0; i < size; ++i)
    add(i);
  made = cutTensors(mesh, bytes, {}, 0, std::move(tensors), terms);
  for (int64_t i = 0; i < size; ++i) {
    const EntryTensor *tensor = getTensor(i);
    const StepcBinding &binding = bindings[size_t(i)];
    begin[i] = tensor ? tensor->begin : 0;
    end[i] = tensor ? tensor->end
                    : requireElements(*binding.param, {name, Role::Param, {}});
    if (bucket)
      bucket[i] = tensor ? int64_t(tensor->bucket) : -1;
  }
}

void EntryBinder::run(Transfers &transfers, const TakeMemory &take) {
  for (int64_t i = 0; i < size; ++i)
    add(i);
  for (size_t entry = 0; entry < terms.size(); ++entry)
    requireCommunicator(terms[entry], tensors[entry].name);
  made = transfers.prepare(std::move(tensors), terms, take);
  parts.resize(terms.size());
  for (int64_t i = 0; i < size; ++i)
    if (entryOf[size_t(i)] >= 0)
      translate(i);
}

void EntryBinder::add(int64_t i) {
  const StepcBinding &binding = given[i];
  name = binding.name ? "'" + std::string(binding.name) + "'"
                      : std::to_string(firstId + i);
  given.require(i, name);
  bindings.push_back(binding);
  bindings.back().structSize = sizeof(StepcBinding);
  bindings.back().entry = nullptr;
  entryOf.push_back(binding.entry ? int64_t(terms.size()) : -1);
  if (!binding.entry)
    return;
  requireFields(binding);
  tensors.emplace_back();
  terms.emplace_back();
  tensors.back().id = firstId + i;
  tensors.back().name = name;
  describe(binding, tensors.back(), terms.back());
  requireLayout(binding, terms.back());
  setOwner(binding, terms.back(), tensors.back());
}

/// Whom the entry says, or nobody yet.
void EntryBinder::setOwner(const StepcBinding &binding, const EntryTerms &own,
                           EntryTensor &tensor) const {
  const StepcEntry &entry = *binding.entry;
  int64_t owner = entry.structSize < sizeof(StepcEntry) ? 0 : entry.owner;
  if (!own.owned && owner == 0)
    return;
  int64_t size = own.owned ? mesh.getGroupSize(own.wholeAxes) : 0;
  if (owner < 0 || owner > size)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: the entry's owner is %lld, and %lld ranks may own it",
         name.c_str(), static_cast<long long>(owner),
         static_cast<long long>(size));
  if (owner == 0 && !getCost)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: one rank owns it, and the entry does not say which",
         name.c_str());
  tensor.owner = owner - 1;
  tensor.cost = getCost ? getCost(binding, name) : 1.0;
}

void EntryBinder::requireFields(const StepcBinding &binding) const {
  const char *text = name.c_str();
  if (!binding.param)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s has no parameter", text);
}

/// The address of a tensor that has no gaps.
uintptr_t EntryBinder::requireDense(const DLTensor &tensor, Storage storage,
                                    Role role,
                                    std::vector<int64_t> &strides) const {
  OperandName operand{name, role, {}};
  strides.resize(size_t(tensor.ndim));
  uintptr_t address = requireMemory(tensor, tensor.shape, getByteSize(storage),
                                    operand, strides.data());
  if (countElements(tensor.shape, tensor.ndim) != 0 &&
      !isRowMajor(tensor.shape, tensor.ndim, strides.data()))
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "%s has strides %s; with an entry it must be row-major without gaps",
         operand.str().c_str(),
         describeShape(strides.data(), tensor.ndim).c_str());
  return address;
}

void EntryBinder::describe(const StepcBinding &binding, EntryTensor &tensor,
                           EntryTerms &own) const {
  const DLTensor &param = *binding.param;
  OperandName paramName{name, Role::Param, {}}, gradName{name, Role::Grad, {}};
  tensor.elements = requireElements(param, paramName);
  Storage storage = requireStorage(param, place, paramName);
  tensor.shape.assign(param.shape, param.shape + param.ndim);
  std::vector<int64_t> strides;
  tensor.param = requireDense(param, storage, Role::Param, strides);
  tensor.codedColumns = countCodedColumns(binding, tensor.shape);
  tensor.strides.resize(tensor.shape.size());
  setRowMajor(tensor.shape.data(), param.ndim, tensor.strides.data());

  DLTensor none = {};
  none.device = place;
  none.dtype = binding.gradDtype;
  Storage grad =
      requireStorage(binding.grad ? *binding.grad : none, place, gradName);
  if (grad == Storage::I16)
    fail(STEPC_DTYPE_MISMATCH, "%s has dtype i16, and is to be added up",
         gradName.str().c_str());
  tensor.hasGrad = binding.grad != nullptr;
  tensor.gradType = grad;
  if (binding.grad) {
    requireShape(*binding.grad, tensor.shape.data(), param.ndim, gradName);
    tensor.grad = requireDense(*binding.grad, grad, Role::Grad, strides);
  }
  own = makeEntryTerms(mesh, *binding.entry,
                       binding.layout && binding.layout->flat != 0, storage,
                       grad, name);
}

/// Refuses what crosses ranks where the communicator cannot bring it.
void EntryBinder::requireCommunicator(const EntryTerms &own,
                                      const std::string &tensor) const {
  uint64_t wide = (own.wholeAxes | own.partialAxes) & mesh.getWideAxes();
  const StepcCommunicator &communicator = mesh.getCommunicator();
  bool onDevice = place.device_type != kDLCPU;
  bool has = onDevice ? communicator.enqueueStart && communicator.enqueueFinish
                      : communicator.start && communicator.finish;
  if (!wide || has)
    return;
  fail(STEPC_INVALID_ARGUMENT,
       "tensor %s: its entry crosses %s, and the communicator has no %s",
       tensor.c_str(), mesh.describe(wide).c_str(),
       onDevice ? "enqueueStart and enqueueFinish, which a plan on a CUDA "
                  "device needs"
                : "start and finish");
}

void EntryBinder::requireFlat(const StepcLayout &layout,
                              const EntryTerms &own) const {
  if (layout.flatAxes != own.wholeAxes)
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "tensor %s: the layout is flat over %s, and the entry's parameter is "
         "whole over %s",
         name.c_str(), mesh.describe(layout.flatAxes).c_str(),
         mesh.describe(own.wholeAxes).c_str());
  if (layout.begin != -1)
    fail(
        STEPC_INVALID_ARGUMENT,
        "tensor %s: the layout begins at %lld; with an entry it is -1, and the "
        "runtime chooses",
        name.c_str(), static_cast<long long>(layout.begin));
}

void EntryBinder::requireRows(const StepcLayout &layout,
                              const EntryTerms &own) const {
  bool first = layout.ndim > 0 && layout.dimAxes &&
               (layout.dimAxes[0] & own.wholeAxes) == own.wholeAxes;
  for (int32_t i = 1; layout.dimAxes && i < layout.ndim; ++i)
    first &= !(layout.dimAxes[i] & own.wholeAxes);
  if (!first)
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "tensor %s: the entry's parameter is whole over %s, which cut a range "
         "of the elements or rows of dim 0, and no other dim",
         name.c_str(), mesh.describe(own.wholeAxes).c_str());
}

void EntryBinder::requireOwned(const StepcLayout &layout,
                               const EntryTerms &own) const {
  uint64_t cut = layout.flat ? layout.flatAxes : 0;
  for (int32_t i = 0; layout.dimAxes && i < layout.ndim; ++i)
    cut |= layout.dimAxes[i];
  if (cut & own.wholeAxes)
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "tensor %s: the layout cuts it over %s, along which one rank owns it",
         name.c_str(), mesh.describe(cut & own.wholeAxes).c_str());
}

/// Refuses addends of what is not the same tensor, or part of it, on all ranks
/// that have one.
void EntryBinder::requireAddends(const StepcLayout &layout,
                                 const EntryTerms &own) const {
  uint64_t cut = layout.flat ? layout.flatAxes : 0;
  for (int32_t i = 0; layout.dimAxes && i < layout.ndim; ++i)
    cut |= layout.dimAxes[i];
  if (uint64_t both = cut & own.partialAxes)
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "tensor %s: the entry's gradient is partial over %s, over which the "
         "layout cuts the parameter",
         name.c_str(), mesh.describe(both).c_str());
  uint64_t all = own.partialAxes | own.wholeAxes;
  if (uint64_t both = layout.distinctAxes & all)
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "tensor %s: the entry names %s, along which the layout says that "
         "there are other tensors",
         name.c_str(), mesh.describe(both).c_str());
}

/// Refuses a layout that the entry does not go with, and a parameter that is
/// not the whole of what is cut.
void EntryBinder::requireLayout(const StepcBinding &binding,
                                const EntryTerms &own) const {
  StepcLayout whole = {};
  std::vector<uint64_t> axes;
  if (const StepcLayout *layout = binding.layout) {
    requireStructSize(layout, offsetof(StepcLayout, start), sizeof(StepcLayout),
                      "StepcLayout");
    std::memcpy(&whole, layout, std::min(layout->structSize, sizeof(whole)));
    whole.structSize = sizeof(whole);
  } else if (own.wholeAxes && !own.owned) {
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "tensor %s: its entry is whole over %s, and no layout says how a step "
         "cuts it",
         name.c_str(), mesh.describe(own.wholeAxes).c_str());
  }
  if (own.wholeAxes && !own.owned && whole.flat) {
    requireFlat(whole, own);
    whole.flat = 0;
    whole.flatAxes = 0;
    whole.begin = 0;
  } else if (own.rows) {
    requireRows(whole, own);
    axes.assign(whole.dimAxes, whole.dimAxes + whole.ndim);
    axes[0] &= ~own.wholeAxes;
    whole.dimAxes = axes.data();
  } else if (own.owned) {
    requireOwned(whole, own);
  }
  requireAddends(whole, own);
  makeLayout(mesh, binding.layout ? &whole : nullptr, *binding.param, name);
}

/// The layout of the part: where it is in what the caller has.
void EntryBinder::setLayout(const StepcLayout *layout, const EntryTerms &own,
                            const EntryTensor &tensor, Part &part) const {
  StepcLayout &made = part.layout;
  if (layout)
    std::memcpy(&made, layout, std::min(layout->structSize, sizeof(made)));
  made.structSize = sizeof(made);
  if (own.owned) {
    made.distinctAxes |= own.wholeAxes;
    if (!layout) {
      made.ndim = int32_t(tensor.shape.size());
      made.shape = tensor.shape.data();
    }
    return;
  }
  if (!own.rows) {
    made.begin = own.wholeAxes ? tensor.begin : made.begin;
    return;
  }
  // Where the whole of the other dims is here, it begins at 0.
  int64_t row =
      countRowsBefore(mesh.getGroupRank(own.wholeAxes), tensor.shape[0],
                      mesh.getGroupSize(own.wholeAxes));
  bool alone = true;
  for (int32_t i = 0; i < made.ndim; ++i)
    alone &= !((made.dimAxes[i] & ~own.wholeAxes) & mesh.getWideAxes());
  if (made.start)
    part.start.assign(made.start, made.start + made.ndim);
  else if (alone)
    part.start.assign(size_t(made.ndim), 0);
  if (!part.start.empty()) {
    part.start[0] += row;
    made.start = part.start.data();
  }
}

void EntryBinder::translate(int64_t i) {
  auto entry = size_t(entryOf[size_t(i)]);
  const EntryTerms &own = terms[entry];
  const EntryTensor &tensor = made.tensors[entry];
  StepcBinding &binding = bindings[size_t(i)];
  if (tensor.elsewhere && binding.states)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s has states, and another rank owns it", tensor.name.c_str());
  Part &part = parts[entry];
  part.param = *binding.param;
  part.param.strides = nullptr;
  part.param.byte_offset = 0;
  uintptr_t address =
      tensor.param + uintptr_t(tensor.begin * getByteSize(own.param));
  part.shape = tensor.shape;
  if (own.rows) {
    int64_t ranks = mesh.getGroupSize(own.wholeAxes), all = tensor.shape[0];
    int64_t rank = mesh.getGroupRank(own.wholeAxes);
    part.shape[0] = countRowsBefore(rank + 1, all, ranks) -
                    countRowsBefore(rank, all, ranks);
  } else if (own.wholeAxes && !own.owned) {
    part.shape = {tensor.end - tensor.begin};
  } else {
    address = tensor.param;
  }
  part.param.data = reinterpret_cast<void *>(address);
  part.param.ndim = int32_t(part.shape.size());
  part.param.shape = part.shape.data();
  part.grad = part.param;
  part.grad.dtype = getDLDataType(own.sum);
  part.grad.data = reinterpret_cast<void *>(tensor.landing);
  if (!tensor.landing)
    part.grad.data = reinterpret_cast<void *>(
        tensor.grad + uintptr_t(tensor.begin * getByteSize(own.grad)));
  setLayout(binding.layout, own, tensor, part);
  if (binding.layout || own.owned)
    binding.layout = &part.layout;
  binding.param = &part.param;
  binding.grad = tensor.landing || tensor.hasGrad ? &part.grad : nullptr;
  binding.gradDtype = part.grad.dtype;
}

void stepc::cutParts(const Mesh &mesh, const StepcBinding *bindings,
                     int64_t size, BucketSizes bytes, int64_t *begin,
                     int64_t *end, int64_t *bucket) {
  BindingList list = makeBindingList(bindings, size);
  if (size == 0)
    return;
  if (!bindings->param)
    fail(STEPC_INVALID_ARGUMENT, "tensor 0 has no parameter");
  EntryBinder(mesh, bindings->param->device, 0, list, nullptr)
      .cut(bytes, begin, end, bucket);
}
