//===- PlanRebind.cpp - tensors of a plan that moved ----------------------===//
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

void Plan::setGradActive(BoundTensor &tensor, bool active) noexcept {
  if (tensor.hasGrad == active)
    return;
  tensor.hasGrad = active;
  model.numToggled += tensor.hasGrad != tensor.listed ? 1 : -1;
}

/// Whether a gradient at this address may reach into what its own tensor's
/// step writes. Other tensors are not asked: that would cost more than a step
/// of a small tensor.
bool Plan::touchesOwnRow(const BoundTensor &tensor,
                         uintptr_t grad) const noexcept {
  if (tensor.size.elements == 0)
    return false;
  const Variant &variant = getVariant(tensor);
  const int64_t *row = model.getRow(tensor);
  size_t first = model.getOperandWord(tensor, 0);
  bool contiguous = row[STEPC_ROW_RANK] == 0;
  auto getRange = [&](size_t k, uintptr_t address) {
    const Operand &operand = variant.operands[k];
    if (contiguous && operand.reach == Reach::Full)
      return std::pair(address,
                       address + uintptr_t(tensor.size.elements *
                                           getByteSize(operand.storage)));
    View view = model.getView(tensor, k);
    ByteSpan span = getByteSpan(view);
    return std::pair(address + span.low, address + span.high);
  };
  auto [begin, end] = getRange(variant.grad, grad);
  for (size_t k = 0; k < variant.operands.size(); ++k) {
    if (k == variant.grad || variant.operands[k].role == Role::Position ||
        tensor.isCoded(k))
      continue;
    auto [low, high] = getRange(k, uintptr_t(row[first + k]));
    if (begin < high && low < end)
      return true;
  }
  for (const StateCodes &codes : model.getCodes(tensor))
    if ((begin < codes.codes + uintptr_t(codes.getCodeBytes()) &&
         codes.codes < end) ||
        (begin < codes.scales + uintptr_t(codes.getScaleBytes()) &&
         codes.scales < end))
      return true;
  return false;
}

/// Whether a device has the address, where one steps the tensor.
bool Plan::isInMemory(const BoundTensor &tensor,
                      uintptr_t address) const noexcept {
  return isOnProcessor() || tensor.size.elements == 0 ||
         engine->hasMemory(address);
}

/// Whether a tensor has the place, dtype, shape and strides with which the
/// operand is bound, and memory.
bool Plan::looksAsBound(const BoundTensor &tensor, size_t operand,
                        DLDataType type, const DLTensor &given) const noexcept {
  if (!isAt(given, model.place) || given.ndim != tensor.rank ||
      given.dtype.code != type.code || given.dtype.bits != type.bits ||
      given.dtype.lanes != 1 || !given.data ||
      (tensor.rank > 0 && !given.shape))
    return false;
  const int64_t *extents = tensor.getExtents();
  for (int32_t i = 0; i < tensor.rank; ++i)
    if (given.shape[i] != extents[i])
      return false;
  const int64_t *strides = tensor.getStrides(operand);
  return given.strides
             ? haveSameStrides(extents, tensor.rank, given.strides, strides)
             : isRowMajor(extents, tensor.rank, strides);
}

bool Plan::setGradFast(int64_t id, const DLTensor *grad) noexcept {
  if (id < 0 || id >= int64_t(model.tensors.size()))
    return false;
  BoundTensor &tensor = model.tensors[id];
  if (tensor.entry >= 0)
    return setEntryGradFast(tensor, grad);
  if (!grad) {
    setGradActive(tensor, false);
    return true;
  }
  size_t operand = size_t(tensor.gradWord) - model.getOperandWord(tensor, 0);
  if (!looksAsBound(tensor, operand, tensor.gradType, *grad))
    return false;
  uintptr_t address =
      reinterpret_cast<uintptr_t>(grad->data) + grad->byte_offset;
  if (address & uintptr_t(tensor.gradItemSize - 1))
    return false;
  int64_t &word = model.getRow(tensor)[tensor.gradWord];
  if (uintptr_t(word) != address && !STEPC_FAULT("engine-old-gradient")) {
    if (touchesOwnRow(tensor, address) || !isInMemory(tensor, address))
      return false;
    word = int64_t(address);
  }
  setGradActive(tensor, true);
  return true;
}

bool Plan::isBoundTo(const BoundTensor &tensor, size_t operand,
                     const DLTensor &given) const noexcept {
  Storage storage = getVariant(tensor).operands[operand].storage;
  uintptr_t address =
      reinterpret_cast<uintptr_t>(given.data) + given.byte_offset;
  if (tensor.entry >= 0)
    return address == getEntry(tensor).param &&
           isEntryLike(getEntry(tensor), storage, given);
  uintptr_t bound =
      uintptr_t(model.getRow(tensor)[model.getOperandWord(tensor, operand)]);
  return address == bound &&
         looksAsBound(tensor, operand, getDLDataType(storage), given);
}

bool Plan::moveGrad(int64_t id, const DLTensor &param,
                    const DLTensor &grad) noexcept {
  if (id < 0 || id >= int64_t(model.tensors.size()) || !isOnProcessor())
    return false;
  const BoundTensor &tensor = model.tensors[id];
  return hasGradOf(tensor) &&
         isBoundTo(tensor, getVariant(tensor).param, param) &&
         setGradFast(id, &grad);
}

void Plan::setGrad(int64_t id, const DLTensor *grad) {
  if (setGradFast(id, grad))
    return;
  requireId(id);
  if (model.tensors[id].entry >= 0)
    return setEntryGrad(id, *grad);
  replaceOperand(id, getVariant(model.tensors[id]).grad, *grad);
  setGradActive(model.tensors[id], true);
}

void Plan::setParam(int64_t id, const DLTensor *param) {
  requireId(id);
  if (!param)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: no parameter",
         model.names[id].c_str());
  const BoundTensor &tensor = model.tensors[id];
  size_t operand = getVariant(tensor).param;
  if (isBoundTo(tensor, operand, *param))
    return;
  if (tensor.entry >= 0)
    setEntryParam(id, *param);
  else
    replaceOperand(id, operand, *param);
}

/// Exact where touchesOwnRow() is not: strided views may interleave.
void Plan::requireOwnRow(int64_t id, const View &grad) {
  const BoundTensor &tensor = model.tensors[id];
  const Variant &variant = getVariant(tensor);
  if (tensor.size.elements == 0)
    return;
  for (size_t k = 0; k < variant.operands.size(); ++k)
    if (k != variant.grad &&
        overlapChecker.overlap(grad, model.getView(tensor, k)))
      fail(STEPC_OVERLAP, "%s and %s share memory",
           model.getOperandName(id, variant.grad).str().c_str(),
           model.getOperandName(id, k).str().c_str());
  for (const StateCodes &codes : model.getCodes(tensor))
    if (overlapChecker.overlap(grad, codes.getScalesView())) {
      OperandName scales = model.getOperandName(id, size_t(codes.operand));
      scales.scales = true;
      fail(STEPC_OVERLAP, "%s and %s share memory",
           model.getOperandName(id, variant.grad).str().c_str(),
           scales.str().c_str());
    }
}

/// Makes `given` the operand, which has its dtype and shape and may have other
/// strides. Nothing has changed when it throws.
void Plan::replaceOperand(int64_t id, size_t operand, const DLTensor &given) {
  BoundTensor &tensor = model.tensors[id];
  const Variant &variant = getVariant(tensor);
  const Operand &description = variant.operands[operand];
  OperandName name = model.getOperandName(id, operand);
  Storage storage = requireStorage(given, model.place, name);
  if (storage != description.storage)
    fail(STEPC_NEEDS_BIND, "%s has dtype %s, it was bound with %s",
         name.str().c_str(), getName(storage), getName(description.storage));
  requireShape(given, tensor.getExtents(), tensor.rank, name);

  // The dims as they would be: extents, and strides of all operands.
  size_t rank = size_t(tensor.rank), operands = variant.operands.size();
  std::vector<int64_t> dims(tensor.dims.get(),
                            tensor.dims.get() + rank * (operands + 1));
  int64_t *strides = dims.data() + rank * (operand + 1);
  View view{
      requireMemory(given, dims.data(), getByteSize(storage), name, strides),
      tensor.rank, dims.data(), strides, getByteSize(storage)};
  if (tensor.flat)
    requireFlatDense(view, name);
  int64_t *boundStrides = tensor.getStrides(operand);
  bool sameStrides =
      haveSameStrides(dims.data(), tensor.rank, strides, boundStrides);
  View bound = model.getView(tensor, operand);
  if (sameStrides && view.address == bound.address)
    return;

  if (tensor.size.elements != 0 && !STEPC_FAULT("device-memory-unchecked"))
    engine->requireMemory(view.address, name);
  bool isGrad = operand == variant.grad;
  if (isGrad)
    requireOwnRow(id, view);
  else if (overlapChecker.overlapsItself(view))
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "%s is written, but shape %s with strides %s keeps several elements "
         "in one place",
         name.str().c_str(), describeShape(dims.data(), tensor.rank).c_str(),
         describeShape(strides, tensor.rank).c_str());
  if (!sameStrides) {
    if (variant.space == Space::Tiles)
      layout.computeTiles(dims.data(), tensor.rank, dims.data() + rank,
                          variant);
    else
      layout.compute(dims.data(), tensor.rank, dims.data() + rank,
                     int64_t(operands),
                     int64_t(getLeadingOperand(tensor, variant)));
    int32_t toClass = 2 * tensor.variant + (layout.getRank() != 0);
    if (toClass != tensor.rowClass &&
        model.classes[tensor.rowClass].getPlaces(tensor.row).count)
      fail(STEPC_NEEDS_BIND, "%s has other strides, and states on disk",
           name.str().c_str());
    model.listsValid = false;
    model.classes[toClass].reserve(1, layout.getRank(),
                                   tensor.size.countChunks());
    engine->reserveRows(size_t(toClass));
    // Here ends what can fail.
    std::copy_n(strides, rank, boundStrides);
    moveRow(id, toClass, layout);
  }
  model.getRow(tensor)[model.getOperandWord(tensor, operand)] =
      int64_t(view.address);
  if (!isGrad)
    engine->forgetCarried(size_t(id), size_t(id) + 1);
  overlapUnchecked = true;
}

void Plan::moveRow(int64_t id, int32_t toClass,
                   const RowLayout &newLayout) noexcept {
  BoundTensor &tensor = model.tensors[id];
  if (toClass != tensor.rowClass) {
    RowClass &from = model.classes[tensor.rowClass];
    RowClass &to = model.classes[toClass];
    int64_t row = to.addRow(tensor.size);
    std::copy_n(from.getRow(tensor.row), from.getFixedWords(), to.getRow(row));
    to.setCodes(row, from.getCodes(tensor.row));
    to.setPlaces(row, RowPlaces());
    from.removeRow(tensor.row, tensor.size);
    tensor.rowClass = toClass;
    tensor.row = row;
  }
  model.classes[toClass].setLayout(tensor.row, newLayout);
}

/// Adds the views of a tensor that reach into [begin, end) to the checker, to
/// which memory for all views of the plan belongs.
void Plan::addViews(int64_t id, uintptr_t begin, uintptr_t end,
                    bool writtenOnly) {
  const BoundTensor &tensor = model.tensors[id];
  const Variant &variant = getVariant(tensor);
  for (size_t k = 0; k < variant.operands.size(); ++k) {
    bool isGrad = k == variant.grad;
    if (isGrad && (writtenOnly || !hasGradOf(tensor)))
      continue;
    if (tensor.elsewhere && !isGrad && k != variant.param)
      continue;
    View view = getWholeView(tensor, k);
    ByteSpan span = getByteSpan(view);
    if (view.address + span.low < end && begin < view.address + span.high)
      overlapChecker.add({view, !isGrad, id, int64_t(k)});
  }
  for (const StateCodes &codes : model.getCodes(tensor)) {
    OwnedView scales = OwnedView::ofScales(codes, id);
    ByteSpan span = getByteSpan(scales.view);
    if (scales.view.address < end && begin < scales.view.address + span.high)
      overlapChecker.add(scales);
  }
  if (uintptr_t mirror = reinterpret_cast<uintptr_t>(model.mirrors[id]);
      mirror && mirror < end && begin < mirror + sizeof(float))
    overlapChecker.add(OwnedView::ofMirror(model.mirrors[id], id));
}
