//===- Schedule.cpp - the entries of a program's schedule -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Schedule.h"

using namespace mlir;
using namespace mlir::step;

std::vector<ScheduleEntry> mlir::step::getSchedule(ProgramOp program) {
  std::vector<ScheduleEntry> entries;
  int64_t numFinishes = 0;
  for (Operation &op : program.getBody().front()) {
    if (isa<ScalarPhaseOp>(op))
      continue;
    int64_t segment = *getSegment(&op);
    auto phase = dyn_cast<PhaseOp>(op);
    if (phase && (phase.getSpace() == Space::Elements ||
                  phase.getSpace() == Space::Tiles)) {
      if (phase.getTrailing() && !entries.empty() && !entries.back().kernel)
        entries.back().isTrailing = true;
      entries.push_back(
          {segment, phase.getSymName().str(), phase, {}, phase.getTrailing()});
      continue;
    }
    if (entries.empty() || entries.back().kernel ||
        entries.back().segment != segment)
      entries.push_back(
          {segment,
           (program.getSymName() + "_finish" + Twine(numFinishes++)).str(),
           PhaseOp(),
           {},
           false});
    entries.back().finish.push_back(&op);
  }
  return entries;
}
