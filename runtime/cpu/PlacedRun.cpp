//===- PlacedRun.cpp - steps of what lies in a store --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/PlacedRun.h"

#include "core/Fault.h"
#include "core/Status.h"
#include "store/Store.h"

#include <algorithm>

using namespace stepc;
using namespace stepc::cpu;

PlacedRun::~PlacedRun() { leaveForeign(); }

void PlacedRun::leaveForeign() noexcept {
  if (!ring || !model.store->isForeign())
    return;
  [[maybe_unused]] const store::Ring *left = ring.release();
}

void PlacedRun::reserve(int64_t pieceBytes) {
  newRing.reset();
  if (pieceBytes == 0)
    return;
  int64_t slotBytes =
      std::max(pieceBytes, model.store->getConfig().windowBytes);
  if (ring && slotBytes <= ring->getSlotBytes())
    return;
  newRing = std::make_unique<store::Ring>(model.store, slotBytes);
  windows.resize(size_t(newRing->getNumSlots()));
}

void PlacedRun::commit() noexcept {
  if (!newRing)
    return;
  leaveForeign();
  ring = std::move(newRing);
}

/// Begins to read the next window into a slot.
bool PlacedRun::load(Windows &next, size_t slot) {
  Window &window = windows[slot];
  if (!next.next(window))
    return false;
  if (window.bytes > ring->getSlotBytes())
    fail(STEPC_INTERNAL_ERROR, "a window of %lld bytes has a slot of %lld",
         static_cast<long long>(window.bytes),
         static_cast<long long>(ring->getSlotBytes()));
  ring->read(int(slot), window.spans);
  return true;
}

/// Has who works on a piece find it from `address` on, where its first element
/// is.
void PlacedRun::point(const PlacedPiece &piece, uintptr_t address) const {
  const PlacedState &state = *piece.state;
  int64_t first = STEPC_FAULT("store-piece-as-the-first") ? 0 : piece.first;
  uintptr_t begin =
      address - uintptr_t(state.getOffset(first, model.codes.data()));
  switch (state.kind) {
  case PlacedState::Kind::Plain:
    *piece.word = int64_t(begin);
    return;
  case PlacedState::Kind::Codes:
    model.codes[size_t(state.codes)].codes = begin;
    *piece.word = int64_t(begin);
    return;
  case PlacedState::Kind::Scales:
    model.codes[size_t(state.codes)].scales = begin;
    return;
  case PlacedState::Kind::Floats:
    model.codes[size_t(state.codes)].scratch = begin;
    return;
  }
}

bool PlacedRun::work(const StepWork &all, size_t slot, Workers &workers,
                     RoundRunner &rounds) {
  const Window &window = windows[slot];
  const auto data = reinterpret_cast<uintptr_t>(ring->getData(int(slot)));
  for (const PlacedPiece &piece : window.pieces)
    point(piece, data + uintptr_t(piece.at));
  const WorkSegment segment = {0, 1, window.weight};
  StepWork own = all;
  own.parts = &window.part;
  own.segments = &segment;
  own.numSegments = 1;
  own.weight = window.weight;
  changed |= window.part.changes != 0;
  bool worked = workers.run(own, rounds);
  for (const PlacedPiece &piece : window.pieces) {
    const PlacedState &state = *piece.state;
    point(piece, state.address + uintptr_t(state.getOffset(
                                     piece.first, model.codes.data())));
  }
  return worked;
}

bool PlacedRun::run(const StepWork &all, const WorkSegment &segment,
                    Workers &workers, RoundRunner &rounds) {
  model.store->requireOwn();
  const size_t numSlots = windows.size();
  Windows next(model.store->getAddress(0), model.codes.data(),
               ring->getSlotBytes());
  next.begin(all.parts + segment.beginPart, all.parts + segment.endPart);
  try {
    size_t loaded = 0;
    while (loaded < numSlots && load(next, loaded))
      ++loaded;
    for (size_t done = 0; done < loaded; ++done) {
      const size_t slot = done % numSlots;
      if (!STEPC_FAULT("store-not-awaited"))
        ring->awaitRead(int(slot));
      if (!work(all, slot, workers, rounds)) {
        ring->abandon();
        return false;
      }
      if (!STEPC_FAULT("store-not-written"))
        ring->write(int(slot), windows[slot].spans);
      // What it had is with the ring.
      if (loaded == done + numSlots && load(next, slot))
        ++loaded;
    }
    ring->settle();
  } catch (...) {
    ring->abandon();
    throw;
  }
  return true;
}
