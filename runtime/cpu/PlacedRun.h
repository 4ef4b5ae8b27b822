//===- PlacedRun.h - steps of what lies in a store ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Takes a segment window by window through a ring: all workers work on one
// whose states are in memory, while those around it cross. Rows, and codes,
// have the addresses of that memory meanwhile, and those of the store else.
//
// A segment ends with all that it has changed in the store: the next one reads
// it there, and so does who saves it. What is not worked on is not read: a step
// that is skipped moves nothing.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_PLACEDRUN_H
#define STEPC_CPU_PLACEDRUN_H

#include "core/Model.h"
#include "cpu/Windows.h"
#include "cpu/Workers.h"

#include <memory>
#include <vector>

namespace stepc::cpu {

class PlacedRun {
public:
  explicit PlacedRun(Model &model) : model(model) {}
  /// In a forked process the ring stays: its threads are not there, and what
  /// they have may be locked for ever.
  ~PlacedRun();
  PlacedRun(const PlacedRun &) = delete;
  PlacedRun &operator=(const PlacedRun &) = delete;

  /// Makes ready for pieces of so many bytes at most, 0: there are none; and
  /// has it be so.
  void reserve(int64_t pieceBytes);
  void commit() noexcept;
  /// Whether anything lies in the store.
  bool any() const { return ring != nullptr; }

  /// Runs the parts of one segment; false where a kernel threw. Throws where
  /// the store fails.
  bool run(const StepWork &work, const WorkSegment &segment, Workers &workers,
           RoundRunner &rounds);
  void begin() { changed = false; }
  /// Whether something may have been changed since begin().
  bool hasChanged() const { return changed; }

  int64_t getBytes() const { return ring ? ring->getBytes() : 0; }

private:
  void leaveForeign() noexcept;
  bool load(Windows &windows, size_t slot);
  bool work(const StepWork &all, size_t slot, Workers &workers,
            RoundRunner &rounds);
  void point(const PlacedPiece &piece, uintptr_t address) const;

  Model &model;
  std::unique_ptr<store::Ring> ring;
  std::unique_ptr<store::Ring> newRing;
  /// Of each slot.
  std::vector<Window> windows;
  bool changed = false;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_PLACEDRUN_H
