//===- RoundList.h - what rounds launch on a device -------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A round combines statistics and calls functions on the arrays of the groups,
// which lie in device memory. What core/Rounds.h does on the processor is a
// list of launches here: of kernels over entries that are addresses.
//
// On several ranks the words that cross, as core/Exchange.h orders them, are
// written to memory of the engine before the round's calls are enqueued, and
// read from there. Those that say which groups take part stay there: functions
// are called for all groups, and the device leaves out those that do not.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_ROUNDLIST_H
#define STEPC_CUDA_ROUNDLIST_H

#include "core/Exchange.h"

#include <cstdint>
#include <vector>

namespace stepc::cuda {

/// Where what rounds change lies among the words of a group, all of 64 bits:
/// results with the scalars behind them, statistics, the scalars as the step
/// leaves them, and for each call whether it says to skip.
struct ValueLayout {
  explicit ValueLayout(const Manifest &manifest);

  int64_t scalars;
  int64_t statistics;
  int64_t updated;
  int64_t skips;
  int64_t words;
};

/// The buffer of a tensor that takes no part: each of its words is to be
/// `word`.
struct IdleBuffer {
  int64_t round;
  int64_t address;
  int64_t count;
  int64_t word;
};

/// What the entries name. Addresses are of device memory.
struct RoundInputs {
  /// Hyper-parameters and options of the groups, one after the other.
  int64_t groups = 0;
  int64_t groupWords = 0;
  /// What rounds change, ValueLayout::words for each group.
  int64_t values = 0;
  /// As many f64 as there are contributions.
  int64_t scratch = 0;
  /// Where the list will lie.
  int64_t list = 0;
  /// For each group whether a tensor of it takes part.
  std::vector<uint8_t> active;
  /// The group of each tensor.
  std::vector<int32_t> groupOf;
  /// For each statistic the contribution of each tensor, 0: it has none.
  std::vector<int64_t> contributions;
  /// What crosses ranks; null: nothing does.
  const Exchange *exchange = nullptr;
  /// As many words as cross beside buffers in all rounds.
  int64_t crossing = 0;
  std::vector<IdleBuffer> idle;
};

/// Entries of one launch.
struct RoundPart {
  /// Exchange: no launch, but the calls of the communicator.
  enum class Kind {
    Copy,
    Fill,
    Order,
    Unorder,
    Sum,
    Amax,
    Exchange,
    Call,
    Decide
  };

  Kind kind;
  /// -1 for what begins a step, the number of rounds for what ends it.
  int64_t round;
  /// Of the round.
  size_t call;
  /// In words, from the begin of the list.
  int64_t offset;
  int64_t entries;
  /// Whether it is done in a step that is skipped, too.
  bool always;
};

class RoundList {
public:
  explicit RoundList(const Manifest &manifest);

  const ValueLayout &getLayout() const { return layout; }
  /// Whether some round may skip the step.
  bool maySkip() const { return skips; }
  /// The most words, contributions and launches that there can be. `exchange`
  /// may be null.
  size_t countWords(size_t tensors, size_t groups,
                    const Exchange *exchange) const;
  size_t countContributions(size_t tensors) const;
  size_t countParts() const;

  /// Takes the memory for a list of so many.
  void reserve(size_t tensors, size_t groups, const Exchange *exchange);
  /// Makes the list; allocates nothing.
  void make(const RoundInputs &inputs);

  const std::vector<int64_t> &getWords() const { return words; }
  /// In the order of their launches.
  const std::vector<RoundPart> &getParts() const { return parts; }
  /// Where the words lie that cross beside buffers in the round.
  const PackedWords &getCrossing(int64_t round) const {
    return crossing[size_t(round)];
  }

private:
  /// Ends a part, of entries of `entryWords` from `offset` on.
  void addPart(RoundPart::Kind kind, int64_t round, size_t call, size_t offset,
               size_t entryWords, bool always = false);
  void addCopy(int64_t from, int64_t to);
  void addBegin();
  void addStatistics(int64_t round);
  void addSources(size_t statistic, int64_t group);
  void shareStatistics(int64_t round);
  void addExchange(int64_t round);
  void placeCrossing(int64_t round);
  template <typename Visit>
  void forEachCrossing(int64_t round, Visit &&visit) const;
  void addFills(int64_t round);
  void addPacked(int64_t round, bool maximum);
  void addUnpacked(int64_t round, bool maximum);
  void addFlags(int64_t group, int64_t count);
  bool isCalled(const RoundCall &call, int64_t group) const;
  void addCall(int64_t round, size_t call, int64_t number);
  void addDecide(int64_t round, int64_t firstCall);
  void addEnd(bool always);
  int64_t getValue(int64_t group, int64_t word) const;

  const Manifest &manifest;
  ValueLayout layout;
  bool skips = false;
  const RoundInputs *in = nullptr;
  int64_t numGroups = 0;
  std::vector<int64_t> words;
  std::vector<RoundPart> parts;
  /// Entries of statistics of one kind, until their sources are listed.
  std::vector<int64_t> sums[2];
  int64_t numContributions = 0;
  /// One for each round.
  std::vector<PackedWords> crossing;
  int64_t numCrossing = 0;
  /// Where the word of the first group lies that says whether it takes part
  /// anywhere; 0: this is the only rank.
  int64_t activeWords = 0;
};

} // namespace stepc::cuda

#endif // STEPC_CUDA_ROUNDLIST_H
