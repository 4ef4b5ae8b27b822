//===- PlacedRun.cpp - steps on a device of what lies in a store ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/PlacedRun.h"

#include "core/Fault.h"
#include "core/Status.h"
#include "store/Store.h"

#include <algorithm>
#include <string>

using namespace stepc;
using namespace stepc::cuda;
using store::roundUpToPage;

MappedRing::MappedRing(std::shared_ptr<const Device> ownDevice,
                       std::shared_ptr<store::Store> store, int64_t slotBytes)
    : device(std::move(ownDevice)),
      ring(std::make_unique<store::Ring>(std::move(store), slotBytes)) {
  const DriverTable &driver = device->getDriver();
  const std::string what = " of " + std::to_string(ring->getBytes()) +
                           " bytes for windows of states";
  ContextScope scope(*device);
  device->require(driver.cuMemHostRegister(ring->getData(0),
                                           size_t(ring->getBytes()),
                                           CU_MEMHOSTREGISTER_PORTABLE |
                                               CU_MEMHOSTREGISTER_DEVICEMAP),
                  "cuMemHostRegister", what);
  CUresult result =
      driver.cuMemHostGetDevicePointer(&mapped, ring->getData(0), 0);
  if (result != CUDA_SUCCESS)
    driver.cuMemHostUnregister(ring->getData(0));
  device->require(result, "cuMemHostGetDevicePointer", what);
}

/// Nothing that was enqueued uses it: each window was waited for.
MappedRing::~MappedRing() {
  freeIn(*device, [&](const DriverTable &driver) {
    driver.cuMemHostUnregister(ring->getData(0));
  });
}

/// In a forked process the ring stays, as cpu/PlacedRun.h says; a device cannot
/// be used there either.
PlacedRun::~PlacedRun() {
  if (ring && model.store->isForeign()) [[maybe_unused]]
    const MappedRing *left = ring.release();
}

void PlacedRun::reserve(const WorkspaceNeed &need) {
  newRing.reset();
  if (need.piece == 0)
    return;
  classes.resize(model.classes.size());
  int64_t slotBytes =
      std::max(need.piece, model.store->getConfig().windowBytes);
  if (!ring || slotBytes > (*ring)->getSlotBytes())
    newRing = std::make_unique<MappedRing>(device, model.store, slotBytes);
}

bool PlacedRun::commit() noexcept {
  if (!newRing)
    return false;
  ring = std::move(newRing);
  return true;
}

//===----------------------------------------------------------------------===//
// Lists
//===----------------------------------------------------------------------===//

static RowPlaces getPlaces(const RowList &list, int64_t row) {
  return list.rowPlaces ? list.rowPlaces[row] : RowPlaces();
}

/// The bytes of elements [first, last): of a row that is not cut all, which may
/// have gaps.
static std::pair<int64_t, int64_t> getSpan(const PlacedState &state,
                                           const RowList &list, int64_t row,
                                           int64_t first, int64_t last) {
  if (getPlaces(list, row).cut == 0)
    return {0, state.bytes};
  // The last piece may end where no block does.
  int64_t all = state.kind == PlacedState::Kind::Scales
                    ? list.codes[state.codes].elements
                    : state.bytes / state.itemSize;
  return {state.getOffset(first, list.codes),
          last >= all ? state.bytes : state.getOffset(last, list.codes)};
}

/// Visits the states of a window with the bytes [from, to) of each, and where
/// they are in the window: `visit(piece, state, from, to, at)`. All states have
/// a place, whatever a segment uses.
template <typename Visit>
void PlacedRun::forEachState(const Class &own, size_t window,
                             Visit &&visit) const {
  const RowWindow &range = own.getWindows().getWindows()[window];
  int64_t at = 0;
  for (int64_t k = range.beginPiece; k < range.endPiece; ++k) {
    const WindowPiece &piece = own.getWindows().getPiece(k);
    const RowPlaces places = getPlaces(own.list, piece.row);
    const PlacedState *first = own.list.places + places.first;
    for (const PlacedState *s = first; s != first + places.count; ++s) {
      auto [from, to] =
          getSpan(*s, own.list, piece.row, piece.first, piece.last);
      visit(k, *s, from, to, at);
      at += roundUpToPage(to - from);
    }
  }
}

int PlacedRun::getSlot(const Class &own, size_t window) const {
  return int((own.firstWindow + int64_t(window)) %
             int64_t((*ring)->getNumSlots()));
}

RowList PlacedRun::cut(size_t rowClass, RowList list, CodedWindows *coded) {
  Class &own = classes[rowClass];
  list.places = model.places.data();
  own.list = list;
  own.coded = coded;
  own.firstWindow = numWindows;
  const Variant &variant = model.getManifest().variants[rowClass / 2];
  auto measure = [&](int64_t row, int64_t first, int64_t last) {
    const RowPlaces places = getPlaces(list, row);
    WindowBytes bytes;
    for (int32_t k = 0; k < places.count; ++k) {
      auto [from, to] =
          getSpan(list.places[places.first + k], list, row, first, last);
      bytes.slot += roundUpToPage(to - from);
    }
    if (coded)
      bytes.floats = CodedWindows::measure(list, row, first, last);
    return bytes;
  };
  own.getWindows().cut(list, variant.space == Space::Elements,
                       {(*ring)->getSlotBytes(), kCodesWindowBytes}, measure,
                       [&](int64_t row) {
                         const RowPlaces places = getPlaces(list, row);
                         return places.count ? places.cut : int64_t(1);
                       });
  numWindows += int64_t(own.getWindows().getWindows().size());
  own.getWindows().copyRows(list);
  if (coded)
    coded->findPlaces(list);
  place(rowClass);
  return own.getWindows().getList(list);
}

/// Has the codes of a piece find what of them is at an address.
void PlacedRun::findCodes(const Class &own, const PlacedState &state,
                          int64_t piece, uintptr_t address) const {
  if (STEPC_FAULT("placed-codes-not-found"))
    return;
  const StateCodes *codes = own.list.codes + state.codes;
  own.coded->forEachPlace(own.list, piece,
                          [&](const StateCodes &other, CodesPlace &found) {
                            if (&other != codes)
                              return;
                            switch (state.kind) {
                            case PlacedState::Kind::Plain:
                              break;
                            case PlacedState::Kind::Codes:
                              found.codes = address;
                              break;
                            case PlacedState::Kind::Scales:
                              found.scales = address;
                              break;
                            case PlacedState::Kind::Floats:
                              found.floats = address;
                              break;
                            }
                          });
}

/// Has the rows of pieces find their windows. A kernel adds the elements before
/// a chunk to the address of an operand. Of codes it takes the f32, which
/// CodedWindows places.
void PlacedRun::place(size_t rowClass) {
  Class &own = classes[rowClass];
  int64_t operandsWord = model.classes[rowClass].getOperandsWord();
  RowWindows &windows = own.getWindows();
  for (size_t w = 0; w < windows.getWindows().size(); ++w) {
    uintptr_t address = ring->getAddress(getSlot(own, w));
    forEachState(own, w,
                 [&](int64_t piece, const PlacedState &state, int64_t from,
                     int64_t, int64_t at) {
                   if (STEPC_FAULT("placed-as-the-first"))
                     from = 0;
                   if (state.kind != PlacedState::Kind::Plain)
                     return findCodes(own, state, piece,
                                      address + uintptr_t(at));
                   windows.getRow(piece)[operandsWord + state.operand] =
                       int64_t(address + uintptr_t(at) - uintptr_t(from));
                 });
  }
}

bool PlacedRun::isUsed(size_t rowClass, int64_t segment) const {
  const Class &own = classes[rowClass];
  uint64_t uses = model.getSegment(rowClass / 2, segment).uses;
  for (int64_t k = 0; k < own.list.numRows; ++k) {
    const RowPlaces places = getPlaces(own.list, own.list.rows[k].row);
    for (int32_t s = 0; s < places.count; ++s)
      if (uses >> own.list.places[places.first + s].operand & 1)
        return true;
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void PlacedRun::begin() {
  numTurns = loaded = done = 0;
  skipped = false;
  taken.assign(size_t((*ring)->getNumSlots()), false);
}

void PlacedRun::add(size_t rowClass, size_t window, int64_t segment) {
  if (numTurns == turns.size())
    turns.emplace_back();
  Turn &turn = turns[numTurns++];
  turn.rowClass = rowClass;
  turn.window = window;
  turn.segment = segment;
  turn.slot = getSlot(classes[rowClass], window);
  turn.spans.clear();
}

/// What of a window crosses. What lies side by side in both is one span.
void PlacedRun::setSpans(Turn &turn) const {
  const ClassSegment &segment =
      model.getSegment(turn.rowClass / 2, turn.segment);
  forEachState(
      classes[turn.rowClass], turn.window,
      [&](int64_t, const PlacedState &state, int64_t from, int64_t to,
          int64_t at) {
        const StateMoves moves = getMoves(segment, state);
        if (!moves.any)
          return;
        store::Span span = {model.store->getOffset(state.address) + from,
                            roundUpToPage(to - from), at, moves.out, moves.in};
        store::Span *last = turn.spans.empty() ? nullptr : &turn.spans.back();
        if (last && last->offset + last->bytes == span.offset &&
            last->at + last->bytes == span.at &&
            last->changes == span.changes && last->reads == span.reads)
          last->bytes += span.bytes;
        else
          turn.spans.push_back(span);
      });
}

/// Has the windows ahead read that find their slots free, of the segment under
/// way.
void PlacedRun::load() {
  for (; loaded < numTurns; ++loaded) {
    Turn &turn = turns[loaded];
    if (turn.segment != turns[done].segment || taken[size_t(turn.slot)])
      return;
    setSpans(turn);
    (*ring)->read(turn.slot, turn.spans);
    taken[size_t(turn.slot)] = true;
  }
}

void PlacedRun::await(const std::function<bool()> &isSkipped) {
  if (isFirst(done) && !STEPC_FAULT("placed-skip-unseen"))
    skipped = skipped || isSkipped();
  if (skipped)
    return;
  model.store->requireOwn();
  load();
  if (!STEPC_FAULT("placed-not-awaited"))
    (*ring)->awaitRead(turns[done].slot);
}

void PlacedRun::release(Launcher &launcher) {
  Turn &turn = turns[done++];
  if (skipped)
    return;
  launcher.synchronize();
  if (!STEPC_FAULT("placed-not-written"))
    (*ring)->write(turn.slot, turn.spans);
  taken[size_t(turn.slot)] = false;
  if (done < numTurns && !isFirst(done))
    load();
  else
    (*ring)->settle();
}

void PlacedRun::abandon(Launcher &launcher) noexcept {
  if (!ring)
    return;
  try {
    launcher.synchronize();
  } catch (...) {
    // There is nobody to be told: what has failed is under way already.
  }
  (*ring)->abandon();
}
