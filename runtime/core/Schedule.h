//===- Schedule.h - what a step does with a tensor, in entries ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A variant's schedule is one list of entries, in the order in which they are
// done for a tensor: what is computed in a segment, then what crosses ranks in
// the round behind it, then the next segment (docs/abi.md). Engines run it;
// what is read of it is true of all of them.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_SCHEDULE_H
#define STEPC_CORE_SCHEDULE_H

#include "core/Storage.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stepc {

/// What an engine of a device does in a part of a finish: a block works for
/// each row; all blocks work for one row after the other; or the host makes
/// what was handed over to it.
enum class FinishStage : uint8_t { Rows, Spread, Call };

constexpr FinishStage kFinishStages[] = {FinishStage::Rows, FinishStage::Spread,
                                         FinishStage::Call};

const char *getName(FinishStage stage);

enum class EntryKind : uint8_t {
  /// A traversal of the tensor, chunk by chunk.
  Kernel,
  /// Once for a tensor, between two traversals.
  Finish,
  /// What ranks combine in the round behind the segment; or how gradients come
  /// and parameters leave, before and behind all of it.
  Exchange,
  /// A routine of the runtime. No package has one, engines run none.
  Call,
  /// Between memories: of the host, of a device, of a disk. The same.
  Copy
};

constexpr EntryKind kEntryKinds[] = {EntryKind::Kernel, EntryKind::Finish,
                                     EntryKind::Exchange, EntryKind::Call,
                                     EntryKind::Copy};

const char *getName(EntryKind kind);

/// How much of the entry before has to be done when one begins.
enum class EdgeScope : uint8_t {
  Chunk,  ///< the same chunk
  Tensor, ///< all chunks of the tensor
  Class,  ///< all tensors of the class of rows
  Bucket, ///< all tensors that cross ranks side by side with this one
  Round,  ///< the round that it led to
  Model   ///< all tensors
};

constexpr EdgeScope kEdgeScopes[] = {EdgeScope::Chunk, EdgeScope::Tensor,
                                     EdgeScope::Class, EdgeScope::Bucket,
                                     EdgeScope::Round, EdgeScope::Model};

const char *getName(EdgeScope scope);

struct Edge {
  /// Of the schedule.
  size_t entry = 0;
  EdgeScope scope = EdgeScope::Tensor;
};

/// What a tensor adds to a statistic: the value of one of its slots.
struct Contribution {
  size_t statistic = 0;
  size_t slot = 0;
  /// The dims of Variant::layout, a bit for each, over which the slot holds
  /// only this rank's part: ranks that lie apart along the axes of others have
  /// the same.
  uint64_t partial = 0;
};

/// A buffer of the workspace that ranks combine.
struct BufferExchange {
  size_t buffer = 0;
  /// Over the axes that shard these dims of the rule, or the flat range.
  std::vector<std::string> dims;
  bool maximum = false;
};

/// How a tensor as the caller has it, and the part that is stepped, become each
/// other: what comes before a step, of the gradient, and behind it, of the
/// parameter (docs/sharding.md).
enum class TransferKind : uint8_t {
  AllSlice,      ///< all ranks have the sum: each takes its part of it
  ReduceScatter, ///< each has an addend, and gets its part of the sum
  AllReduce,     ///< each has an addend, and gets the sum
  ToOwner,       ///< each has an addend, and the owner gets the sum
  AllGather,     ///< each has a part, and gets the whole
  FromOwner      ///< the owner has the whole, and all get it
};

constexpr TransferKind kTransferKinds[] = {
    TransferKind::AllSlice,  TransferKind::ReduceScatter,
    TransferKind::AllReduce, TransferKind::ToOwner,
    TransferKind::AllGather, TransferKind::FromOwner};

const char *getName(TransferKind kind);

/// Whether it is of the gradient, and so before the step.
constexpr bool isOfGradient(TransferKind kind) {
  return kind <= TransferKind::ToOwner;
}

struct Transfer {
  TransferKind kind = TransferKind::AllSlice;
  /// The dims of the rule that it cuts or puts together, or the flat range.
  std::vector<std::string> dims;
  /// Of the gradient: as the caller has it, and as it crosses ranks.
  Storage entry = Storage::F32;
  Storage wire = Storage::F32;
  /// Whether ranks have addends, which cross; else they have all of it.
  bool sums = false;
};

struct ScheduleEntry {
  EntryKind kind = EntryKind::Kernel;
  /// The segment, or of an exchange the round, which has the same number.
  int64_t segment = 0;
  /// Of kernels and finishes; the second of kernels over strided rows.
  std::string function;
  std::string stridedFunction;
  /// Of a kernel: indices of operands.
  std::vector<size_t> reads;
  std::vector<size_t> writes;
  /// Of an exchange, one of the three.
  std::optional<Contribution> contribution;
  std::optional<BufferExchange> buffer;
  std::optional<Transfer> transfer;
  /// The predicate: left out for tensors in which this slot is not 0; -1:
  /// never.
  int64_t unlessSlot = -1;
  /// On a processor done by the kernel before it, for tensors whose tiles
  /// have whole rows.
  bool trailing = false;
  /// Of a finish: how many products of matrices it makes, each for all of the
  /// tensor.
  int64_t products = 0;
  /// And what a device makes of it, one part behind the other.
  std::vector<FinishStage> stages;
  /// What it waits for, beside the rounds before its segment.
  std::vector<Edge> edges;

  /// Whether an engine calls it for rows, in a segment.
  bool isCalled() const {
    return kind == EntryKind::Kernel || kind == EntryKind::Finish;
  }
  /// The name of a part's kernel.
  std::string getStageName(size_t stage) const {
    return stage == 0 ? function : function + "_stage" + std::to_string(stage);
  }
  /// Whether it waits for an entry with this scope.
  bool waitsFor(EdgeScope scope) const;
};

} // namespace stepc

#endif // STEPC_CORE_SCHEDULE_H
