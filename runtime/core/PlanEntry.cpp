//===- PlanEntry.cpp - tensors that were bound with an entry --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Fault.h"
#include "core/Plan.h"
#include "core/Status.h"

#include <algorithm>

using namespace stepc;

void Plan::setBuckets(BucketSizes sizes) {
  requireNoStep("stepcPlanSetBuckets");
  if (!model.tensors.empty())
    fail(STEPC_WRONG_STATE, "stepcPlanSetBuckets after %zu tensors were bound",
         model.tensors.size());
  transfers.setBuckets(sizes);
}

void Plan::getPart(int64_t id, int64_t &begin, int64_t &end) const {
  requireId(id);
  const BoundTensor &tensor = model.tensors[id];
  begin = tensor.entry < 0 ? 0 : getEntry(tensor).begin;
  end = tensor.entry < 0 ? tensor.size.elements : getEntry(tensor).end;
}

/// What the caller has of an operand.
View Plan::getWholeView(const BoundTensor &tensor, size_t operand) const {
  const Variant &variant = getVariant(tensor);
  bool isGrad = operand == variant.grad;
  if (tensor.entry < 0 || !(isGrad || operand == variant.param))
    return model.getView(tensor, operand);
  const EntryTensor &entry = getEntry(tensor);
  return makeEntryView(entry, transfers.getTerms(entry), isGrad);
}

/// Whether a tensor has the place, dtype and shape that were bound, no gaps,
/// and memory.
bool Plan::isEntryLike(const EntryTensor &entry, Storage storage,
                       const DLTensor &given) const noexcept {
  DLDataType type = getDLDataType(storage);
  auto rank = int64_t(entry.shape.size());
  if (!isAt(given, model.place) || given.ndim != rank ||
      given.dtype.code != type.code || given.dtype.bits != type.bits ||
      given.dtype.lanes != 1 || !given.data || (rank > 0 && !given.shape) ||
      !std::equal(entry.shape.begin(), entry.shape.end(), given.shape))
    return false;
  return !given.strides || haveSameStrides(entry.shape.data(), rank,
                                           given.strides, entry.strides.data());
}

/// Whether a gradient reaches into what its own tensor's step writes. All of it
/// is without gaps, but for states that follow the part.
bool Plan::touchesEntry(const BoundTensor &tensor,
                        const View &grad) const noexcept {
  const Variant &variant = getVariant(tensor);
  ByteSpan own = getByteSpan(grad);
  for (size_t k = 0; k < variant.operands.size(); ++k) {
    if (k == variant.grad || variant.operands[k].role == Role::Position ||
        (tensor.elsewhere && k != variant.param))
      continue;
    View view = getWholeView(tensor, k);
    ByteSpan span = getByteSpan(view);
    if (grad.address + uintptr_t(own.low) <
            view.address + uintptr_t(span.high) &&
        view.address + uintptr_t(span.low) < grad.address + uintptr_t(own.high))
      return true;
  }
  return false;
}

/// In a step what has come is settled; what is set is for the next one.
void Plan::setEntryActive(BoundTensor &tensor) noexcept {
  const EntryTensor &entry = getEntry(tensor);
  if (!inStep && !inPass)
    setGradActive(tensor, (entry.hasGrad || entry.landed) && !tensor.elsewhere);
}

/// A gradient that kernels read where it is.
void Plan::placeGrad(BoundTensor &tensor, uintptr_t grad) noexcept {
  EntryTensor &entry = getEntry(tensor);
  entry.grad = grad;
  if (!entry.landing && !STEPC_FAULT("transfer-old-slice"))
    model.getRow(tensor)[tensor.gradWord] =
        int64_t(grad) + entry.begin * getByteSize(entry.gradType);
}

TakeMemory Plan::getTransferMemory() {
  return [this](size_t bytes) {
    return engine->allocate(bytes, "what brings gradients and parameters");
  };
}

/// A communicator that has failed may still write what it was given: the next
/// step has other memory.
void Plan::renewTransfers() {
  if (!transfers.isStale())
    return;
  transfers.renew(getTransferMemory());
  for (const BoundTensor &tensor : model.tensors)
    if (tensor.entry >= 0 && getEntry(tensor).landing)
      model.getRow(tensor)[tensor.gradWord] = int64_t(getEntry(tensor).landing);
  overlapUnchecked = true;
}

bool Plan::setEntryGradFast(BoundTensor &tensor,
                            const DLTensor *grad) noexcept {
  EntryTensor &entry = getEntry(tensor);
  if (!grad) {
    entry.hasGrad = false;
    setEntryActive(tensor);
    return true;
  }
  const EntryTerms &terms = transfers.getTerms(entry);
  if (!isEntryLike(entry, entry.gradType, *grad))
    return false;
  View view = makeEntryView(entry, terms, /*isGrad=*/true);
  view.address = reinterpret_cast<uintptr_t>(grad->data) + grad->byte_offset;
  if (view.address & uintptr_t(view.itemSize - 1))
    return false;
  if (view.address != entry.grad) {
    if (touchesEntry(tensor, view) ||
        (!isOnProcessor() && !engine->hasMemory(view.address)))
      return false;
    placeGrad(tensor, view.address);
  }
  entry.hasGrad = true;
  setEntryActive(tensor);
  return true;
}

/// Refuses addresses that steps cannot use.
void Plan::requireEntryMemory(const NewTransfers &made) const {
  for (const EntryTensor &tensor : made.tensors) {
    if (tensor.elements == 0)
      continue;
    engine->requireMemory(tensor.param, {tensor.name, Role::Param, {}});
    if (tensor.hasGrad)
      engine->requireMemory(tensor.grad, {tensor.name, Role::Grad, {}});
  }
}

/// What `given` is as the operand. Refuses another dtype or shape, and gaps.
View Plan::requireEntryView(int64_t id, size_t operand,
                            const DLTensor &given) const {
  const BoundTensor &tensor = model.tensors[id];
  const EntryTensor &entry = getEntry(tensor);
  const EntryTerms &terms = transfers.getTerms(entry);
  OperandName name = model.getOperandName(id, operand);
  bool isGrad = operand == getVariant(tensor).grad;
  Storage bound = isGrad ? entry.gradType : terms.param;
  Storage storage = requireStorage(given, model.place, name);
  if (storage != bound)
    fail(STEPC_NEEDS_BIND, "%s has dtype %s, it was bound with %s",
         name.str().c_str(), getName(storage), getName(bound));
  auto rank = int64_t(entry.shape.size());
  requireShape(given, entry.shape.data(), rank, name);
  std::vector<int64_t> strides(entry.shape.size());
  View view = makeEntryView(entry, terms, isGrad);
  view.address = requireMemory(given, entry.shape.data(), getByteSize(storage),
                               name, strides.data());
  if (entry.elements != 0 &&
      !isRowMajor(entry.shape.data(), rank, strides.data()))
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "%s has strides %s; with an entry it must be row-major without gaps",
         name.str().c_str(), describeShape(strides.data(), rank).c_str());
  if (entry.elements != 0)
    engine->requireMemory(view.address, name);
  return view;
}

void Plan::setEntryGrad(int64_t id, const DLTensor &grad) {
  BoundTensor &tensor = model.tensors[id];
  const Variant &variant = getVariant(tensor);
  View view = requireEntryView(id, variant.grad, grad);
  for (size_t k = 0; k < variant.operands.size(); ++k) {
    if (k == variant.grad || (tensor.elsewhere && k != variant.param))
      continue;
    if (overlapChecker.overlap(view, getWholeView(tensor, k)))
      fail(STEPC_OVERLAP, "%s and %s share memory",
           model.getOperandName(id, variant.grad).str().c_str(),
           model.getOperandName(id, k).str().c_str());
  }
  placeGrad(tensor, view.address);
  getEntry(tensor).hasGrad = true;
  setEntryActive(tensor);
  overlapUnchecked = true;
}

void Plan::setEntryParam(int64_t id, const DLTensor &param) {
  // Transfers under way read and write it where it was.
  requireNoStep("stepcPlanSetParam of a tensor with an entry");
  BoundTensor &tensor = model.tensors[id];
  size_t operand = getVariant(tensor).param;
  View view = requireEntryView(id, operand, param);
  EntryTensor &entry = getEntry(tensor);
  if (entry.beside && view.address != entry.param)
    fail(
        STEPC_NEEDS_BIND,
        "%s has moved; it was bound side by side with others, with which it is "
        "gathered there",
        model.getOperandName(id, operand).str().c_str());
  entry.param = view.address;
  // An owner's part begins at 0, and so does that of another rank, which has
  // none.
  int64_t begin = tensor.elsewhere ? 0 : entry.begin;
  model.getRow(tensor)[model.getOperandWord(tensor, operand)] =
      int64_t(view.address) + begin * view.itemSize;
  engine->forgetCarried(size_t(id), size_t(id) + 1);
  overlapUnchecked = true;
}
