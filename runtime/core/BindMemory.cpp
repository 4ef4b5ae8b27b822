//===- BindMemory.cpp - the memory that binding takes -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Binder.h"
#include "core/Fault.h"
#include "core/Reserve.h"
#include "core/Status.h"
#include "store/File.h"

#include <algorithm>
#include <cmath>

using namespace stepc;

/// Zeros where the plan's tensors are; `what` they are of the new tensors.
uintptr_t Binder::takeZeros(size_t bytes, const char *what) {
  newBlocks.push_back(plan.engine->allocate(
      bytes, what + (" of " + std::to_string(created.size())) +
                 " tensors, the first " + created[0].name));
  return newBlocks.back().address;
}

/// All states of one call in one block, the states of a tensor side by side.
void Binder::allocateStates() {
  size_t bytes = 0;
  auto forEachState = [&](auto visit) {
    for (NewTensor &tensor : created)
      if (tensor.ownsStates && !tensor.bound.elsewhere)
        for (size_t k : getVariant(tensor).states)
          if (!tensor.bound.isCoded(k))
            visit(tensor, k, getVariant(tensor).operands[k]);
  };
  auto countElements = [&](const NewTensor &tensor, size_t k) {
    View view = makeView(tensor.bound, getVariant(tensor), k, 0);
    int64_t elements = 1;
    for (int64_t i = 0; i < view.rank; ++i)
      elements *= view.extents[i];
    return elements;
  };
  auto getSize = [&](const NewTensor &tensor, size_t k, const Operand &state) {
    return roundUpToLine(countElements(tensor, k) * getByteSize(state.storage));
  };
  forEachState([&](NewTensor &tensor, size_t k, const Operand &state) {
    if (__builtin_add_overflow(bytes, getSize(tensor, k, state), &bytes))
      throw std::bad_alloc();
  });
  if (bytes == 0)
    return;
  uintptr_t next = takeZeros(bytes, "the states");
  forEachState([&](NewTensor &tensor, size_t k, const Operand &state) {
    tensor.addresses[k] = next;
    int64_t elements = countElements(tensor, k);
    if (elements > 0 &&
        (state.initialValue != 0.0 || std::signbit(state.initialValue)) &&
        !STEPC_FAULT("engine-initial-value-lost"))
      plan.engine->fill(next, elements, state);
    next += getSize(tensor, k, state);
  });
}

/// The slots and live buffers of a tensor.
int64_t Binder::getOwnBytes(const NewTensor &tensor) const {
  return getKeptBytes(getVariant(tensor), tensor.tiles,
                      /*buffers=*/!tensor.bound.elsewhere);
}

/// All slots and live buffers of one call in one block.
void Binder::allocateTiles() {
  int64_t bytes = 0;
  for (const NewTensor &tensor : created)
    if (__builtin_add_overflow(bytes, getOwnBytes(tensor), &bytes))
      throw std::bad_alloc();
  if (bytes == 0)
    return;
  uintptr_t next = takeZeros(size_t(bytes), "the slots");
  for (NewTensor &tensor : created) {
    tensor.ownMemory = next;
    if (!STEPC_FAULT("engine-slots-of-another-tensor"))
      next += uintptr_t(getOwnBytes(tensor));
  }
}

void Binder::allocateWorkspace() {
  need = plan.workspaceNeed;
  for (const NewTensor &tensor : created) {
    if (tensor.bound.elsewhere)
      continue;
    need.piece = std::max(need.piece, tensor.pieceBytes);
    for (const PlacedState &state : tensor.places)
      need.placedTotal += store::roundUpToPage(state.bytes);
    addCodedNeed(tensor);
    const RowSize &rows = tensor.bound.size;
    need.routine = std::max(need.routine, rows.routine);
    need.handedMatrices += rows.handedMatrices;
    if (__builtin_add_overflow(need.handedTotal, rows.handed,
                               &need.handedTotal))
      throw std::bad_alloc();
    if (model.classes[tensor.bound.rowClass].isLarge(rows)) {
      need.shared = std::max(need.shared, rows.workspace);
    } else {
      need.largest = std::max(need.largest, rows.workspace);
      if (__builtin_add_overflow(need.total, rows.workspace, &need.total))
        throw std::bad_alloc();
    }
  }
  plan.engine->reserveWorkspace(need);
}

/// Visits what crosses ranks of buffers and of blocks of codes: the pack, the
/// word of the row that names its place, or -1 and less of the tensor's codes,
/// and its size.
template <typename Visit>
void Binder::forEachExchange(const NewTensor &tensor, Visit &&visit) const {
  const Variant &variant = getVariant(tensor);
  const Dims &dims = model.getManifest().rules[variant.rule].dims;
  int64_t word = model.classes[tensor.bound.rowClass].getOperandsWord() +
                 int64_t(variant.operands.size());
  for (const ScheduleEntry &entry : variant.schedule) {
    if (!entry.buffer)
      continue;
    uint64_t axes = 0;
    for (const std::string &dim : entry.buffer->dims)
      axes |= tensor.layout.getAxes(dims, dim);
    const WorkspaceBuffer &buffer = variant.workspace[entry.buffer->buffer];
    PackKey key{entry.segment, axes & model.exchange.getMesh().getWideAxes(),
                entry.buffer->maximum};
    visit(key, word + int64_t(entry.buffer->buffer),
          getBufferEntries(buffer, tensor.tiles));
  }
  if (tensor.bound.elsewhere)
    return;
  int64_t place = 0;
  for (const StateCodes &codes : tensor.codes) {
    --place;
    if (codes.shared.any())
      visit(PackKey{model.getEndRound(), codes.shared.axes, true}, place,
            codes.shared.countWords());
  }
}

/// Where the row, or codes, of a bound tensor find what crosses ranks.
void Binder::setExchanged(int64_t id, int64_t word,
                          uintptr_t address) noexcept {
  const BoundTensor &bound = model.tensors[size_t(id)];
  if (word >= 0) {
    model.getRow(bound)[word] = int64_t(address);
    return;
  }
  SharedBlocks &shared = model
                             .codes[size_t(model.getCodes(bound).first -
                                           model.codes.data() - word - 1)]
                             .shared;
  shared.words = address;
  shared.forget(0, shared.rows);
}

void Binder::allocateExchange() {
  Exchange &exchange = model.exchange;
  exchange.beginReserve();
  for (const NewTensor &tensor : created)
    forEachExchange(tensor, [&](const PackKey &key, int64_t, int64_t entries) {
      exchange.reserve(key, entries);
    });
  exchange.endReserve();
}

/// Allocates nothing: the sizes were computed before.
void Binder::addExchange(int64_t id, const NewTensor &tensor) noexcept {
  forEachExchange(tensor,
                  [&](const PackKey &key, int64_t word, int64_t entries) {
                    model.exchange.add(key, id, word, entries);
                  });
}
