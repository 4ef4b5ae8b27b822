//===- ExplainModel.h - what a compiled step does, as data ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_EXPLAINMODEL_H
#define STEPC_PASSES_PACKAGE_EXPLAINMODEL_H

#include "dialect/Step.h"

#include <string>
#include <vector>

namespace mlir::step {

/// Bytes for each element of the parameter.
struct Traffic {
  int64_t reads = 0, writes = 0;
  int64_t total() const { return reads + writes; }
};

/// Something in memory that a program works on.
struct ExplainedMemory {
  /// `Full` has the parameter's dims, and alone counts per parameter. A
  /// `Vector`, a state or a temp, has less, and a `Partial` is partial sums.
  enum class Kind { Full, Vector, Partial };
  Kind kind;
  std::string name;
  std::string storage;
  /// "[...b, n, 1]"; of partial sums "for 1024 elements of a row".
  std::string extent;
  /// Of one entry.
  int64_t bytes;
  /// Of partial sums: bytes per parameter, which short dims make more.
  double share = 0;
};

struct ExplainedAccess {
  size_t memory;
  bool reads, writes;
};

/// One call of a round.
struct ExplainedCall {
  std::string function;
  std::string scope;
  /// What it reads.
  std::vector<std::string> statistics, scalars;
  int64_t results = 0;
  /// Kept scalars, and whether a skipped step updates them too.
  std::vector<std::pair<std::string, bool>> updates;
  std::vector<std::string> reports;
  bool maySkip = false;
};

/// What runs at one place of the order.
struct ExplainedEntry {
  enum class Kind { Kernel, Finish, Round };
  Kind kind;
  std::string name;
  int64_t segment;
  std::vector<ExplainedAccess> accesses;
  /// Operations, without constants and conversions, as a number and as words.
  int64_t numOperations = 0;
  std::string operations;
  /// Of a kernel.
  Traffic traffic;
  double partialShare = 0;
  /// Of a finish: what it combines, and statistics it contributes to.
  std::vector<std::string> combines, contributes;
  /// Of a round.
  std::vector<ExplainedCall> calls;
};

/// A value that more than one kernel computes.
struct ExplainedAgain {
  std::string value;
  std::vector<std::string> kernels;
};

struct ExplainedProgram {
  std::string name;
  /// "rule any, amsgrad=false, computed in f32".
  std::string variant;
  bool tiled;
  int64_t tensorSlots;
  /// Values of the scalar row, by segment.
  std::vector<int64_t> slots;
  std::vector<ExplainedMemory> memory;
  /// In the order in which they run for a tensor.
  std::vector<ExplainedEntry> entries;
  /// By all kernels, and the least possible: what the rule needs is read once
  /// and what it changes is written once.
  Traffic moved, least;
  double partialShare = 0;
  /// Reads of operands that a kernel before has read; those of a value that a
  /// kernel before has written are read back.
  std::vector<ExplainedAgain> readAgain, readBack, recomputed;

  int64_t countKernels() const;
  int64_t countSlots() const;
};

/// A report on an optimizer after the schedule stage.
struct ExplainModel {
  std::string name;
  int64_t segments = 1;
  /// "norm2: sum over model, combined before round 0".
  std::vector<std::string> statistics, scalars, reports;
  std::vector<ExplainedProgram> programs;
};

ExplainModel buildExplainModel(OptimizerOp scheduled);

/// "28", "0.125": without digits that say nothing.
std::string formatBytes(double bytes);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_EXPLAINMODEL_H
