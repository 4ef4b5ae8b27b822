//===- PlacedRun.h - steps on a device of what lies in a store --*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A device steps states of a store in the windows of a ring, in memory of the
// host that it reaches in place. The host waits: for a window to be read,
// before its launches are enqueued, and for these, before it is written. Which
// windows there are follows from the lists, and so do the addresses in it: the
// device has them as long as the lists stay. With two slots, of two classes:
//
//   class 0: windows 0 1 2 (slots 0 1 0)   class 1: windows 3 4 (slots 1 0)
//
// A segment takes those of the classes that have to do with it, and ends with
// all that it has changed in the store.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_PLACEDRUN_H
#define STEPC_CUDA_PLACEDRUN_H

#include "core/Engine.h"
#include "core/Model.h"
#include "cuda/CodedWindows.h"
#include "cuda/Launcher.h"
#include "cuda/RowWindows.h"
#include "store/Ring.h"

#include <functional>
#include <memory>
#include <vector>

namespace stepc::cuda {

/// A ring whose memory a device reaches.
class MappedRing {
public:
  MappedRing(std::shared_ptr<const Device> device,
             std::shared_ptr<store::Store> store, int64_t slotBytes);
  ~MappedRing();
  MappedRing(const MappedRing &) = delete;
  MappedRing &operator=(const MappedRing &) = delete;

  store::Ring &operator*() const { return *ring; }
  store::Ring *operator->() const { return ring.get(); }
  /// Where the device finds a slot.
  uintptr_t getAddress(int slot) const {
    return uintptr_t(mapped) +
           uintptr_t(slot) * uintptr_t(ring->getSlotBytes());
  }

private:
  std::shared_ptr<const Device> device;
  std::unique_ptr<store::Ring> ring;
  CUdeviceptr mapped = 0;
};

class PlacedRun {
public:
  PlacedRun(Model &model, std::shared_ptr<const Device> device)
      : model(model), device(std::move(device)) {}
  ~PlacedRun();

  /// Makes ready for what is bound; and has it be so.
  void reserve(const WorkspaceNeed &need);
  void reserveRows(size_t rowClass, int64_t numWindows) {
    classes[rowClass].windows.reserve(model.classes[rowClass], numWindows);
  }
  /// Whether the windows lie elsewhere now.
  bool commit() noexcept;
  bool any() const { return ring != nullptr; }
  int64_t getBytes() const { return ring ? (*ring)->getBytes() : 0; }

  // The lists of a step, class after class.
  void beginLists() { numWindows = 0; }
  /// Cuts that of a class, whose windows are those of its codes where it has
  /// such, and which finds these in the windows then; what the device gets
  /// instead of it.
  RowList cut(size_t rowClass, RowList list, CodedWindows *coded);
  const std::vector<RowWindow> &getWindows(size_t rowClass) const {
    return classes[rowClass].getWindows().getWindows();
  }
  /// Whether a segment has to do with what of a class lies in the store.
  bool isUsed(size_t rowClass, int64_t segment) const;

  // A step: windows in the order of their launches, and then each of them.
  void begin();
  void add(size_t rowClass, size_t window, int64_t segment);
  /// `isSkipped` tells of the steps after a round: what is skipped moves
  /// nothing. It waits for the stream.
  void await(const std::function<bool()> &isSkipped);
  void release(Launcher &launcher);
  /// After an error: the ring can be used again.
  void abandon(Launcher &launcher) noexcept;

private:
  struct Class {
    RowWindows windows;
    CodedWindows *coded = nullptr;
    RowList list = {};
    int64_t firstWindow = 0;

    RowWindows &getWindows() {
      return coded ? coded->getRowWindows() : windows;
    }
    const RowWindows &getWindows() const {
      return const_cast<Class *>(this)->getWindows();
    }
  };
  struct Turn {
    size_t rowClass;
    size_t window;
    int64_t segment;
    int slot;
    std::vector<store::Span> spans;
  };

  template <typename Visit>
  void forEachState(const Class &own, size_t window, Visit &&visit) const;
  int getSlot(const Class &own, size_t window) const;
  void place(size_t rowClass);
  void findCodes(const Class &own, const PlacedState &state, int64_t piece,
                 uintptr_t address) const;
  void setSpans(Turn &turn) const;
  bool isFirst(size_t turn) const {
    return turn == 0 || turns[turn - 1].segment != turns[turn].segment;
  }
  void load();

  Model &model;
  std::shared_ptr<const Device> device;
  std::unique_ptr<MappedRing> ring;
  std::unique_ptr<MappedRing> newRing;
  /// As Plan's.
  std::vector<Class> classes;
  int64_t numWindows = 0;

  /// The first of them are of the step; the others' memory is kept.
  std::vector<Turn> turns;
  size_t numTurns = 0;
  /// Of these so many are loaded, and are over.
  size_t loaded = 0;
  size_t done = 0;
  /// Whether a slot has a window that is not over.
  std::vector<bool> taken;
  bool skipped = false;
};

} // namespace stepc::cuda

#endif // STEPC_CUDA_PLACEDRUN_H
