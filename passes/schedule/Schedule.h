//===- Schedule.h - the entries of a program's schedule ---------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SCHEDULE_SCHEDULE_H
#define STEPC_PASSES_SCHEDULE_SCHEDULE_H

#include "dialect/Step.h"

#include <vector>

namespace mlir::step {

/// One entry of the schedule (docs/statistics.md), as the manifest lists it and
/// as code is made for it.
struct ScheduleEntry {
  int64_t segment = 0;
  /// The function's name: of a kernel the traversal's.
  std::string name;
  /// A kernel's traversal; null in a finish.
  TraverseOp kernel;
  /// What a finish does, in order.
  SmallVector<Operation *> finish;
  /// A kernel that trails, or what stands before one.
  bool isTrailing = false;
};

/// The schedule of a program. What stands between two kernels in one segment is
/// one finish.
std::vector<ScheduleEntry> getSchedule(ProgramOp program);

/// Whether the operation computes scalars of the tensor.
bool isTensorScalar(Operation *op);

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_SCHEDULE_H
