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

#include <algorithm>
#include <cmath>

using namespace stepc;

/// Zeros where the plan's tensors are; `what` they are of the new tensors.
uintptr_t Binder::takeZeros(size_t bytes, const char *what,
                            std::unique_ptr<StateBlock> &onHost,
                            std::unique_ptr<cuda::DeviceBlock> &onDevice) {
  if (plan.device) {
    onDevice = std::make_unique<cuda::DeviceBlock>(plan.device->allocate(
        bytes, what + (" of " + std::to_string(created.size())) +
                   " tensors, the first " + created[0].name));
    return uintptr_t(onDevice->getAddress());
  }
  onHost = std::make_unique<StateBlock>(bytes);
  return reinterpret_cast<uintptr_t>(onHost->getData());
}

void Binder::fillState(uintptr_t address, int64_t elements,
                       const Operand &state) {
  if (!plan.device)
    return fillElements(reinterpret_cast<char *>(address), elements,
                        state.storage, state.initialValue);
  std::vector<char> values(size_t(elements * getByteSize(state.storage)));
  fillElements(values.data(), elements, state.storage, state.initialValue);
  plan.device->write(address, values.data(), values.size());
}

/// All states of one call in one block, the states of a tensor side by side.
void Binder::allocateStates() {
  size_t bytes = 0;
  auto forEachState = [&](auto visit) {
    for (NewTensor &tensor : created)
      if (tensor.ownsStates)
        for (size_t k : getVariant(tensor).states)
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
    size_t size =
        size_t(countElements(tensor, k)) * size_t(getByteSize(state.storage));
    return (size + 63) & ~size_t(63);
  };
  forEachState([&](NewTensor &tensor, size_t k, const Operand &state) {
    if (__builtin_add_overflow(bytes, getSize(tensor, k, state), &bytes))
      throw std::bad_alloc();
  });
  if (bytes == 0)
    return;
  uintptr_t next = takeZeros(bytes, "the states", newStates, newDeviceStates);
  forEachState([&](NewTensor &tensor, size_t k, const Operand &state) {
    tensor.addresses[k] = next;
    int64_t elements = countElements(tensor, k);
    if (elements > 0 &&
        (state.initialValue != 0.0 || std::signbit(state.initialValue)) &&
        !STEPC_FAULT("engine-initial-value-lost"))
      fillState(next, elements, state);
    next += getSize(tensor, k, state);
  });
}

/// The slots and live buffers of a tensor.
int64_t Binder::getOwnBytes(const NewTensor &tensor) const {
  const Variant &variant = getVariant(tensor);
  if (variant.space != Space::Tiles)
    return 0;
  int64_t slots = (int64_t(variant.tensorSlots * sizeof(double)) + 63) & ~63;
  int64_t live = getWorkspaceBytes(variant, tensor.tiles, /*live=*/true);
  if (__builtin_add_overflow(slots, live, &live))
    throw std::bad_alloc();
  return live;
}

/// All slots and live buffers of one call in one block.
void Binder::allocateTiles() {
  int64_t bytes = 0;
  for (const NewTensor &tensor : created)
    if (__builtin_add_overflow(bytes, getOwnBytes(tensor), &bytes))
      throw std::bad_alloc();
  if (bytes == 0)
    return;
  uintptr_t next =
      takeZeros(size_t(bytes), "the slots", newTiles, newDeviceTiles);
  for (NewTensor &tensor : created) {
    tensor.ownMemory = next;
    if (!STEPC_FAULT("engine-slots-of-another-tensor"))
      next += uintptr_t(getOwnBytes(tensor));
  }
}

/// On a device all rows are worked on at once.
void Binder::reserveDeviceWorkspace() {
  for (const NewTensor &tensor : created)
    if (__builtin_add_overflow(need.total, tensor.bound.size.workspace,
                               &need.total))
      throw std::bad_alloc();
  workspace = plan.workspace;
  plan.device->reserveWorkspace(size_t(need.total));
}

/// What workers and shared rows need for one row after the other: as much as
/// the largest. Taken anew where it has grown, or the team has.
void Binder::allocateWorkspace() {
  need = plan.workspaceNeed;
  if (plan.device)
    return reserveDeviceWorkspace();
  for (const NewTensor &tensor : created) {
    const RowSize &rows = tensor.bound.size;
    if (plan.classes[tensor.bound.rowClass].isLarge(rows)) {
      need.shared = std::max(need.shared, rows.workspace);
    } else {
      need.largest = std::max(need.largest, rows.workspace);
      if (__builtin_add_overflow(need.total, rows.workspace, &need.total))
        throw std::bad_alloc();
    }
  }
  workspace = plan.workspace;
  int64_t own = RowClass::getBatchWorkspace(need.largest, need.total);
  int64_t team =
      std::max<int64_t>(plan.engine.getTeamSize(), plan.workspace.numWorkers);
  int64_t sharedBytes = plan.workspace.shared[1] - plan.workspace.shared[0];
  if ((own == 0 && need.shared == 0) ||
      (team == workspace.numWorkers && own <= int64_t(workspace.workerStride) &&
       need.shared <= sharedBytes))
    return;
  int64_t bytes;
  if (__builtin_mul_overflow(own, team, &bytes) ||
      need.shared > INT64_MAX / 4 ||
      __builtin_add_overflow(bytes, 2 * need.shared, &bytes))
    throw std::bad_alloc();
  newWorkspace = std::make_unique<StateBlock>(size_t(bytes));
  workspace.workers = newWorkspace->getData();
  workspace.workerStride = size_t(own);
  workspace.numWorkers = team;
  workspace.shared[0] = workspace.workers + own * team;
  workspace.shared[1] = workspace.shared[0] + need.shared;
}

/// Visits the buffers that cross ranks: their pack, the word of the row that
/// names their place, and their size.
template <typename Visit>
void Binder::forEachExchange(const NewTensor &tensor, Visit &&visit) const {
  const Variant &variant = getVariant(tensor);
  const Manifest &manifest = plan.package->getManifest();
  int64_t word = plan.classes[tensor.bound.rowClass].getOperandsWord() +
                 int64_t(variant.operands.size());
  for (const WorkspaceBuffer &buffer : variant.workspace) {
    if (buffer.crosses()) {
      uint64_t axes = 0;
      for (const std::string &dim : buffer.exchangeDims)
        axes |= tensor.layout.getAxes(manifest.rules[variant.rule].dims, dim);
      PackKey key{buffer.exchangeRound,
                  axes & plan.exchange.getMesh().getWideAxes(),
                  buffer.exchangeMaximum};
      visit(key, word, getBufferEntries(buffer, tensor.tiles));
    }
    ++word;
  }
}

void Binder::allocateExchange() {
  Exchange &exchange = plan.exchange;
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
                    plan.exchange.add(key, id, word, entries);
                  });
}

/// Takes all memory that commit() and the steps after it need. Should it run
/// out midway, the lists have become longer and nothing else.
void Binder::reserve() {
  plan.listsValid = false;
  plan.cohortsValid = false;
  struct Demand {
    int64_t rows = 0;
    int64_t rank = 0;
    int64_t chunks = 0;
  };
  std::vector<Demand> demands(plan.classes.size());
  for (const NewTensor &tensor : created) {
    Demand &demand = demands[tensor.bound.rowClass];
    ++demand.rows;
    demand.rank = std::max(demand.rank, tensor.rowLayout.getRank());
    demand.chunks += tensor.bound.size.countChunks();
  }
  for (size_t c = 0; c < demands.size(); ++c)
    if (demands[c].rows)
      plan.classes[c].reserve(demands[c].rows, demands[c].rank,
                              demands[c].chunks);

  size_t total = plan.tensors.size() + created.size();
  plan.cohorts.reserve(total);
  reserveAtLeast(plan.tensors, total);
  reserveAtLeast(plan.names, total);
  reserveAtLeast(plan.counts, total);
  reserveAtLeast(plan.fresh, total);
  reserveAtLeast(plan.cohortOf, total);
  reserveAtLeast(plan.mirrors, total);
  reserveAtLeast(plan.listedIds, total);
  reserveAtLeast(plan.steppedIds, total);
  reserveAtLeast(plan.stateBlocks, plan.stateBlocks.size() + 1);
  reserveAtLeast(plan.tileBlocks, plan.tileBlocks.size() + 1);
  reserveAtLeast(plan.deviceStates, plan.deviceStates.size() + 2);
  if (plan.device)
    plan.reserveDevice(total);
}

void Binder::commit() noexcept {
  // Gradients bound before have not been compared with the new tensors.
  plan.overlapUnchecked |= !plan.tensors.empty();
  for (int64_t i = 0; i < size; ++i) {
    const StepcBinding &binding = getBinding(i);
    NewTensor &tensor = created[i];
    BoundTensor &bound = tensor.bound;
    bound.row = plan.classes[bound.rowClass].addRow(bound.size);
    setRow(tensor);
    addExchange(int64_t(plan.tensors.size()), tensor);
    plan.numViews += tensor.addresses.size() + 1; // its mirror
    plan.maxRank = std::max<int64_t>(plan.maxRank, bound.getMaxRank());
    plan.numToggled += bound.hasGrad;
    plan.hasMirrors |= binding.countMirror != nullptr;
    plan.fresh.push_back(getFresh(binding, plan.getVariant(bound)));
    plan.tensors.push_back(std::move(bound));
    plan.names.push_back(std::move(tensor.name));
    plan.counts.push_back(binding.count);
    plan.cohortOf.push_back(-1);
    plan.mirrors.push_back(binding.countMirror);
  }
  plan.exchange.place([&](int64_t id, int64_t word, uintptr_t address) {
    int64_t *row = plan.getRow(plan.tensors[size_t(id)]);
    row[word] = int64_t(address);
  });
  if (!plan.captured || STEPC_FAULT("device-graph-packs-freed"))
    plan.exchange.freeReplaced();
  if (newStates)
    plan.stateBlocks.push_back(std::move(*newStates));
  if (newDeviceStates)
    plan.deviceStates.push_back(std::move(*newDeviceStates));
  if (newDeviceTiles)
    plan.deviceStates.push_back(std::move(*newDeviceTiles));
  if (newTiles)
    plan.tileBlocks.push_back(std::move(*newTiles));
  if (newWorkspace)
    plan.workspaceBlock = std::move(newWorkspace);
  plan.workspace = workspace;
  plan.workspaceNeed = need;
}

/// Sets the row of a new tensor but for its scalars, and the offsets that
/// listing sets.
void Binder::setRow(NewTensor &tensor) noexcept {
  const BoundTensor &bound = tensor.bound;
  const Variant &variant = getVariant(tensor);
  RowClass &rows = plan.classes[bound.rowClass];
  rows.setLayout(bound.row, tensor.rowLayout);
  int64_t *words = rows.getRow(bound.row);
  int64_t *next = std::copy(tensor.addresses.begin(), tensor.addresses.end(),
                            words + rows.getOperandsWord());
  if (variant.space != Space::Tiles)
    return;
  uintptr_t address = tensor.ownMemory;
  words[STEPC_TILE_SLOTS] = int64_t(address);
  words[STEPC_TILE_B] = tensor.tiles.part.b;
  words[STEPC_TILE_N] = tensor.tiles.part.n;
  words[STEPC_TILE_M] = tensor.tiles.part.m;
  words[STEPC_TILE_WHOLE_B] = tensor.tiles.whole.b;
  words[STEPC_TILE_WHOLE_N] = tensor.tiles.whole.n;
  words[STEPC_TILE_WHOLE_M] = tensor.tiles.whole.m;
  words[STEPC_TILE_BEGIN] = tensor.tiles.begin;
  words[STEPC_TILE_END] = tensor.tiles.end;
  address += (variant.tensorSlots * sizeof(double) + 63) & ~size_t(63);
  for (const WorkspaceBuffer &buffer : variant.workspace) {
    // What crosses ranks lies side by side with other tensors'.
    bool own = buffer.live && !buffer.crosses();
    *next++ = own ? int64_t(address) : 0;
    if (own && !STEPC_FAULT("engine-live-buffers-overlap"))
      address += uintptr_t(getBufferBytes(buffer, tensor.tiles));
  }
}
