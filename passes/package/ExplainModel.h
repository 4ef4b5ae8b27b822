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
  /// `Vector`, a state or a temp, has less, a `Partial` is partial sums, and an
  /// `Exchange` crosses ranks.
  enum class Kind { Full, Vector, Partial, Exchange };
  Kind kind;
  std::string name;
  std::string storage;
  /// "[...b, n, 1]"; of partial sums "for 1024 elements of a row"; of an
  /// exchange "B*N words".
  std::string extent;
  /// Of one entry.
  int64_t bytes;
  /// Of partial sums: bytes per parameter, which short dims make more.
  double share = 0;
};

struct ExplainedAccess {
  size_t memory;
  bool reads, writes;
  /// An entry that it trails has had the block of rows at hand.
  bool isCached = false;
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

/// A buffer of one tensor that is reduced over ranks.
struct ExplainedExchange {
  std::string name;
  int64_t round;
  /// "dp+tp".
  std::string axes;
  /// "sum" or "amax".
  std::string op;
  /// How many words of 8 bytes it has: "B*N", "1".
  std::string words;
  /// "sum of grad * grad for each row".
  std::string value;
};

/// What a finish adds to a statistic: all of the tensor's, or a rank's part.
struct ExplainedContribution {
  std::string statistic;
  /// The sharded dims over which it is only a part, "n, m"; empty: none.
  std::string part;
};

/// What one call of the communicator reduces, for all tensors.
struct ExplainedReduction {
  int64_t round;
  /// Empty: all of the mesh.
  std::string axes;
  std::string op;
  /// Programs that exchange, statistics.
  std::vector<std::string> of;
};

/// Of a rule that cannot be sharded: one rank steps the whole tensor.
struct ExplainedOwner {
  /// "n over dp".
  std::string layout;
  /// "definition.mlir:7:3"; empty where that is not known.
  std::string place;
  /// Bytes of an element that other ranks have, to the owner and back.
  int64_t there = 0, back = 0;
  /// States of fewer dims, whose parts go both ways.
  std::vector<std::string> vectors;
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
  /// Of a kernel that may be left out: the tensor's scalar that says so, or -1.
  int64_t unless = -1;
  /// Of what trails a kernel: on a processor it runs with that, a strip of rows
  /// at a time.
  bool isTrailing = false;
  /// Of a finish: what it combines, what goes to other ranks and comes from
  /// them, and statistics it contributes to.
  std::vector<std::string> combines, sends, receives;
  std::vector<ExplainedContribution> contributes;
  /// Of a round, and what crosses in it of a tensor of the program.
  std::vector<ExplainedCall> calls;
  std::vector<ExplainedExchange> exchanges;
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
  /// "n over dp, m over tp"; empty where every rank has whole tensors, or where
  /// it makes no difference.
  std::string layout;
  /// Layouts that the rule cannot have.
  std::vector<ExplainedOwner> owners;
  bool tiled;
  int64_t tensorSlots;
  /// Values of the scalar row, by segment.
  std::vector<int64_t> slots;
  std::vector<ExplainedMemory> memory;
  /// In the order in which they run for a tensor.
  std::vector<ExplainedEntry> entries;
  std::vector<ExplainedExchange> exchanges;
  /// By all kernels, and the least possible: what the rule needs is read once
  /// and what it changes is written once.
  Traffic moved, least;
  /// Of `moved`, what kernels move that may be left out.
  int64_t avoidable = 0;
  double partialShare = 0;
  /// Reads of operands that a kernel before has read; those of a value that a
  /// kernel before has written are read back.
  std::vector<ExplainedAgain> readAgain, readBack, recomputed;

  int64_t countKernels() const;
  int64_t countSlots() const;
  /// In which something of the tensor crosses.
  int64_t countExchangeRounds() const;
};

/// A report on an optimizer after the schedule stage.
struct ExplainModel {
  std::string name;
  int64_t segments = 1;
  /// "norm2: sum over model, combined before round 0".
  std::vector<std::string> statistics, scalars, reports;
  std::vector<ExplainedProgram> programs;
  /// By rounds: no rank makes more calls in a step. Empty where no program is
  /// of a sharded tensor.
  std::vector<ExplainedReduction> reductions;

  /// Whether it says anything of ranks: a program is of sharded tensors, or all
  /// serve every layout.
  bool isOfRanks() const;
  /// Whether programs of tensors that are cut are among them.
  bool hasLayouts() const;
  bool isElementwise() const;
  /// "2 rounds, at most 3 calls in a step, whatever the number of tensors".
  std::string summarizeRanks() const;
};

ExplainModel buildExplainModel(OptimizerOp scheduled);

/// "B*N + 2": the words of all.
std::string formatWords(ArrayRef<ExplainedExchange> exchanges);

/// "8 * (B*N + 2)".
std::string formatExchangedBytes(ArrayRef<ExplainedExchange> exchanges);

/// "8 * (B*N + 2) bytes of a tensor, in 2 rounds".
std::string describeExchanged(const ExplainedProgram &program);

/// "with n over dp one rank steps the whole tensor: of an element
/// that another has 12 bytes go to it, and 8 back (a.mlir:7:3)".
std::string describeOwner(const ExplainedOwner &owner);

/// "round 0: sum over dp of adamw_any_0, statistic norm2".
std::string describeReduction(const ExplainedReduction &reduction);

/// "1 round", "2 rounds", "2 finishes".
std::string formatCount(int64_t number, StringRef what);

/// "28", "0.125": without digits that say nothing.
std::string formatBytes(double bytes);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_EXPLAINMODEL_H
