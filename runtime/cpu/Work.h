//===- Work.h - what a step asks the engine to do -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step is a sequence of segments with a round between two of them. In each
// segment every class of rows has a part: its schedule there, and the rows.
//
// A part is *free* where its schedule is one kernel: its chunks go to any
// worker. Else it is *whole*: rows are taken through the schedule one by one,
// those that fit a cache in batches by one worker, large ones by all together.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_WORK_H
#define STEPC_CPU_WORK_H

#include "core/Engine.h"
#include "core/RowList.h"

#include "stepc/kernel_abi.h"

#include <cstddef>
#include <cstdint>

namespace stepc::cpu {

/// An entry of a schedule: a kernel, or else a finish. One that is neither is
/// not called.
struct EntryCode {
  StepcKernel kernel = nullptr;
  StepcFinish finish = nullptr;
  /// The kernel is left out for rows in which this slot is not 0; -1: never.
  int64_t unlessSlot = -1;
  /// The kernel before has done it for rows that go by blocks of rows.
  bool trailing = false;
  /// Of the tiles space: the word of a row with its columns.
  int64_t columnsWord = 0;
  /// Whether it needs all chunks of the row before it.
  bool waits = false;
  /// In the package.
  const char *name = nullptr;
};

/// What a segment does with the listed rows of one class. Of a free part none
/// are large.
struct WorkPart : RowList {
  const EntryCode *entries;
  int64_t numEntries;
  bool whole;
  /// The weight of what comes before on the segment's line, and of what there
  /// is on it: for an element, and for a chunk or row.
  int64_t before;
  int64_t elementWeight;
  int64_t itemWeight;
  /// Of a row, the word of the first operand, how many there are, and the words
  /// before the dims; operands that codes are decoded for and encoded of.
  int64_t operandsWord;
  int64_t rowOperands;
  int64_t fixedWords;
  uint64_t reads;
  uint64_t writes;
  /// All that the segment has to do with, and what it may change.
  uint64_t uses;
  uint64_t changes;

  /// The chunks, or the batches.
  int64_t getNumItems() const { return whole ? numBatches : numChunks; }
  /// The weight of the line before an item.
  int64_t getWeightBefore(int64_t item) const {
    if (!whole)
      return before + elementsBefore[item] * elementWeight + item * itemWeight;
    return before + batches[item].elementsBefore * elementWeight +
           batches[item].rowsBefore * itemWeight;
  }
};

/// Parts [beginPart, endPart), and what weighs what is on the line.
struct WorkSegment {
  int64_t beginPart;
  int64_t endPart;
  int64_t weight;
};

/// Memory in which rows leave what they need within a segment.
struct WorkspaceMemory {
  /// For each worker, `workerStride` bytes apart; and two for rows that all
  /// workers share, one after the other.
  char *workers = nullptr;
  size_t workerStride = 0;
  char *shared[2] = {nullptr, nullptr};
  /// How many workers have some; 0: none needs it.
  int64_t numWorkers = 0;
};

struct StepWork {
  const WorkPart *parts;
  const WorkSegment *segments;
  int64_t numSegments;
  /// Of everything, in bytes moved.
  int64_t weight;
  WorkspaceMemory workspace;
  /// Whether rounds wait for other ranks. Then they run on the caller's own
  /// thread, on which communicators may depend.
  bool roundsWait;
  StepTrace trace;
};

/// What happens between segments, on one thread while the others wait.
class RoundRunner {
public:
  virtual ~RoundRunner() = default;
  /// Runs round `round`; false: the step is to end here.
  virtual bool runRound(int64_t round) = 0;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_WORK_H
