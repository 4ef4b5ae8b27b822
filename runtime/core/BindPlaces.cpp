//===- BindPlaces.cpp - binding states that lie in a store --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Binder.h"
#include "core/PlacedStates.h"
#include "core/Status.h"
#include "store/Store.h"

#include <algorithm>
#include <numeric>

using namespace stepc;
using store::kPage;
using store::roundUpToPage;

/// How many elements lie in as many bytes as are whole pages.
static int64_t getElementsOfPages(const PlacedState &state,
                                  const std::vector<StateCodes> &codes) {
  const StateCodes *own = state.kind == PlacedState::Kind::Codes ||
                                  state.kind == PlacedState::Kind::Scales
                              ? &codes[size_t(state.codes)]
                              : nullptr;
  bool scales = state.kind == PlacedState::Kind::Scales;
  int64_t perItem = !own ? 1 : scales ? kCodeBlock : own->format->words.perWord;
  int64_t items = kPage / std::gcd(kPage, state.itemSize);
  // Of rows that end within a block no number of elements has whole pages.
  if (perItem > 1 && (!own->rows.isRegular() || own->rows.first))
    return 0;
  return items * perItem;
}

int64_t stepc::getPieceCut(const std::vector<PlacedState> &states,
                           const std::vector<StateCodes> &codes,
                           int64_t unitsPerChunk) {
  constexpr int64_t kMost = int64_t(1) << 40;
  int64_t cut = unitsPerChunk;
  for (const PlacedState &state : states) {
    int64_t elements = getElementsOfPages(state, codes);
    if (elements == 0)
      return 0;
    cut = std::lcm(cut, elements);
    if (cut > kMost)
      return 0;
  }
  return cut;
}

/// What a plan cannot have in a store.
void Binder::requirePlaceable(const NewTensor &tensor, size_t operand) const {
  const Variant &variant = getVariant(tensor);
  const char *state = variant.operands[operand].name.c_str();
  const char *name = tensor.name.c_str();
  if (operand >= 64)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: state '%s' is operand %zu, the first 64 can be on disk",
         name, state, operand);
}

void Binder::addPlaced(PlacedState placed, NewTensor &tensor) const {
  if (placed.bytes == 0)
    return;
  const char *state =
      getVariant(tensor).operands[size_t(placed.operand)].name.c_str();
  if (placed.address % uintptr_t(kPage))
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "tensor %s: state '%s' begins at byte %lld of a store, where no page "
         "does",
         tensor.name.c_str(), state,
         static_cast<long long>(model.store->getOffset(placed.address)));
  requirePlaceable(tensor, size_t(placed.operand));
  tensor.places.push_back(placed);
}

/// Notes which states lie in the plan's store.
void Binder::setPlaces(NewTensor &tensor) const {
  if (!model.store || tensor.ownsStates || tensor.bound.elsewhere)
    return;
  const Variant &variant = getVariant(tensor);
  for (size_t operand : variant.states) {
    uintptr_t address = tensor.addresses[operand];
    if (!model.store->contains(address))
      continue;
    if (tensor.bound.isCoded(operand))
      continue; // below, with their scales
    View view = makeView(tensor.bound, variant, operand, address);
    ByteSpan span = getByteSpan(view);
    PlacedState placed;
    placed.operand = int32_t(operand);
    placed.itemSize = view.itemSize;
    placed.bytes = span.high;
    placed.address = address;
    addPlaced(placed, tensor);
  }
  for (size_t c = 0; c < tensor.codes.size(); ++c) {
    const StateCodes &codes = tensor.codes[c];
    PlacedState placed;
    placed.operand = codes.operand;
    placed.codes = int32_t(c);
    bool first = model.store->contains(codes.codes);
    if (first != model.store->contains(codes.scales))
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s: of state '%s' the codes or the scales are on disk, and "
           "the others are not",
           tensor.name.c_str(),
           variant.operands[size_t(codes.operand)].name.c_str());
    if (!first)
      continue;
    placed.kind = PlacedState::Kind::Codes;
    placed.itemSize = codes.format->words.getBytes();
    placed.bytes = codes.getCodeBytes();
    placed.address = codes.codes;
    addPlaced(placed, tensor);
    placed.kind = PlacedState::Kind::Scales;
    placed.itemSize = int64_t(sizeof(float));
    placed.bytes = codes.getScaleBytes();
    placed.address = codes.scales;
    addPlaced(placed, tensor);
    if (!codes.kept)
      continue;
    placed.kind = PlacedState::Kind::Floats;
    placed.bytes = codes.elements * placed.itemSize;
    placed.address = 0; // of allocateFloats
    addPlaced(placed, tensor);
  }
  setPieces(tensor);
}

/// Takes room in the store for what is f32 in a step, and needs none between
/// steps to be what it was.
void Binder::allocateFloats() {
  for (NewTensor &tensor : created)
    for (PlacedState &placed : tensor.places) {
      if (placed.kind != PlacedState::Kind::Floats)
        continue;
      const uintptr_t address = model.store->take(placed.bytes, true);
      std::shared_ptr<void> given(
          reinterpret_cast<void *>(address), [store = model.store](void *own) {
            store->give(reinterpret_cast<uintptr_t>(own));
          });
      newBlocks.push_back({address, 0, std::move(given)});
      placed.address = address;
      tensor.codes[size_t(placed.codes)].scratch = address;
    }
}

/// Where the tensor is cut, and how much memory a piece of it takes, or the
/// batch that it is in.
void Binder::setPieces(NewTensor &tensor) const {
  if (tensor.places.empty())
    return;
  const BoundTensor &bound = tensor.bound;
  const Variant &variant = getVariant(tensor);
  bool inChunks = variant.space == Space::Elements &&
                  tensor.rowLayout.getRank() == 0 &&
                  !model.classes[bound.rowClass].isWhole();
  for (const PlacedState &state : tensor.places)
    inChunks = inChunks &&
               variant.operands[size_t(state.operand)].reach == Reach::Full;
  tensor.pieceCut = inChunks ? getPieceCut(tensor.places, tensor.codes,
                                           bound.size.unitsPerChunk)
                             : 0;
  if (tensor.pieceCut >= bound.size.elements)
    tensor.pieceCut = 0;
  for (const PlacedState &state : tensor.places)
    tensor.pieceBytes += roundUpToPage(
        tensor.pieceCut ? state.getOffset(tensor.pieceCut, tensor.codes.data())
                        : state.bytes);
  tensor.pieceBytes = model.classes[bound.rowClass].getMostOfBatch(
      bound.size, tensor.pieceBytes);
}

void Binder::addPlaces(NewTensor &tensor) noexcept {
  RowPlaces places = {int32_t(model.places.size()),
                      int32_t(tensor.places.size()), tensor.pieceCut};
  auto firstCodes = int32_t(model.codes.size() - tensor.codes.size());
  for (PlacedState &state : tensor.places) {
    if (state.codes >= 0)
      state.codes += firstCodes;
    model.places.push_back(state);
  }
  model.classes[tensor.bound.rowClass].setPlaces(tensor.bound.row, places);
}
