//===- Worker.h - what one worker does in a step ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_WORKER_H
#define STEPC_CPU_WORKER_H

#include "cpu/Team.h"
#include "cpu/Work.h"

namespace stepc::cpu {

class Worker {
public:
  Worker(const StepWork &work, RoundRunner &rounds, Team &team, int index,
         int count);

  /// Runs this worker's share of all segments. Throws what a kernel throws;
  /// ends early when another worker failed.
  void run();

private:
  bool endSegment(int64_t segment);
  bool runLarge(const WorkPart &part, const ListedRow *row);
  bool runEntries(const WorkPart &part, const ListedRow *row,
                  const StepcCall &call, bool &met);
  void runRows(const EntryCode &entry, const StepcCall &call,
               const ListedRow *begin, const ListedRow *end) const;
  void runKernel(const EntryCode &entry, const StepcCall &call, int64_t begin,
                 int64_t end) const;
  void runOwnChunks(const EntryCode &entry, const StepcCall &call,
                    const ListedRow *row, bool backwards);
  void runLine(const WorkSegment &segment);
  void runFree(const WorkPart &part, int64_t begin, int64_t end);
  void runCodedChunks(const WorkPart &part, const StepcCall &call,
                      int64_t begin, int64_t end);
  void runBatch(const WorkPart &part, const Batch &batch);

  const StepWork &work;
  RoundRunner &rounds;
  Team &team;
  int index;
  int count;
  char *workspace;
  /// Of the worker on the caller's thread; none of others.
  StepTrace trace;
  /// Which of the shared memories the next large row uses.
  int nextShared = 0;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_WORKER_H
