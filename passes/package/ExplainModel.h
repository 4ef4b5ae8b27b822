//===- ExplainModel.h - what a compiled step does, as data ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_EXPLAINMODEL_H
#define STEPC_PASSES_PACKAGE_EXPLAINMODEL_H

#include "passes/schedule/ProgramStorage.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/JSON.h"

#include <string>
#include <vector>

namespace mlir::step {

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

/// A buffer of one tensor that is reduced over ranks.
struct ExplainedExchange {
  std::string program;
  std::string name;
  int64_t round;
  std::vector<std::string> axes;
  /// "sum" or "amax".
  std::string op;
  /// How many words of 8 bytes it has: "B*N", "1".
  std::string words;
  /// "sum of grad * grad for each row".
  std::string value;
};

/// What runs at one place of the order.
struct ExplainedEntry {
  enum class Kind { Kernel, Finish, Round, Exchange };
  Kind kind;
  std::string name;
  int64_t segment;
  std::vector<ExplainedAccess> accesses;
  /// Of a kernel, for each element of the parameter.
  int64_t bytesRead = 0, bytesWritten = 0;
  double partialShare = 0;
  /// Of a kernel that may be left out: the tensor's scalar that says so, or -1.
  int64_t unless = -1;
  /// Of what trails a kernel: on a processor it runs with that, a strip of rows
  /// at a time.
  bool isTrailing = false;
  /// Of a round: what crosses in it of a tensor of the program.
  std::vector<ExplainedExchange> exchanges;
  /// Members that the explanation has of it besides.
  llvm::json::Object members;

  /// Appends to one of `members`.
  void add(StringRef list, llvm::json::Value item);
};

/// A value that more than one kernel computes.
struct ExplainedAgain {
  std::string value;
  std::vector<std::string> kernels;
};

//===----------------------------------------------------------------------===//
// Parts of the document, read from the IR
//===----------------------------------------------------------------------===//

/// The rounds of a step with their calls, those that only exchange included.
std::vector<ExplainedEntry> describeRounds(OptimizerOp optimizer);

/// The dims that are cut, each with its axes; none where every rank has whole
/// tensors.
llvm::json::Array describeLayout(LayoutAttr layout);

/// What brings the gradient from where it lies outside of the step, and what
/// takes the param back there, each with the bytes of an element that cross.
/// `subsets`: whether tensors are stepped while those of others cross.
std::vector<ExplainedEntry> describeTransfers(ProgramOp program,
                                              bool ofGradient, bool subsets);

/// Layouts in whose place the program steps whole tensors, and what moves: one
/// rank steps a tensor, so bytes of an element go to it and back, and vectors,
/// states of fewer dims, both ways.
llvm::json::Array describeOwners(ProgramOp program);

/// What crosses ranks of a tensor of the program, in the order of the
/// workspace.
std::vector<ExplainedExchange>
describeExchanges(const ProgramStorage &storage,
                  const llvm::StringMap<std::string> &values);

/// What is reduced together, of all programs and statistics, by rounds; null
/// where it says nothing of ranks: no program is of a sharded tensor, and not
/// all serve every layout.
llvm::json::Value describeRanks(OptimizerOp optimizer,
                                const llvm::json::Array &programs,
                                ArrayRef<ExplainedExchange> exchanges);

//===----------------------------------------------------------------------===//
// Parts of the document, made of the above
//===----------------------------------------------------------------------===//

llvm::json::Value toJSON(const ExplainedMemory &memory);
llvm::json::Value toJSON(const ExplainedAgain &again);

llvm::json::Array describeEntries(ArrayRef<ExplainedEntry> entries,
                                  ArrayRef<ExplainedMemory> memory);

/// Operands that an entry before has read; `isBack`: whose value an entry
/// before has written.
std::vector<ExplainedAgain> findReadAgain(ArrayRef<ExplainedEntry> entries,
                                          ArrayRef<ExplainedMemory> memory,
                                          bool isBack);

/// What crosses of a tensor: its bytes as a formula, and in how many rounds.
llvm::json::Object describeExchanged(ArrayRef<ExplainedExchange> exchanges);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_EXPLAINMODEL_H
