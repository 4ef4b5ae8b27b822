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

/// What a device does in a part of a finish, which is one launch, or has the
/// host do. Parts of rows have all that is not spread; a block works for a
/// tensor. What is done for each element of matrices is spread over all blocks,
/// one operation a part. A routine of the runtime is three parts: its operand
/// is handed over, the host is called, and the result is taken.
struct FinishStage {
  enum Kind { Rows, Spread, Hand, Call, Take };
  Kind kind = Rows;
  SmallVector<Operation *> entries;
  /// Empty where the host is called.
  std::string name;
};

std::vector<FinishStage> getStages(const ScheduleEntry &finish);

/// The schedule of a program. What stands between two kernels in one segment is
/// one finish.
std::vector<ScheduleEntry> getSchedule(ProgramOp program);

/// Whether the operation computes scalars of the tensor.
bool isTensorScalar(Operation *op);

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_SCHEDULE_H
