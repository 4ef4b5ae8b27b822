//===- Exchange.h - what crosses ranks between segments ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In a round every rank combines its parts with those of others, in one call of
// the communicator: buffers of tensors, and statistics. The buffers of a round,
// group of ranks and operation lie in one *pack*, in the order of the tensors'
// ids, which is the same on all ranks of the group; kernels write to and read
// from it in place.
//
// What crosses, and in which order, is decided here for plans on the processor
// and on devices. On a device packs are in its memory, launches of the engine
// write the words that cross beside them (cuda/RoundList.h), and the calls are
// enqueued.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_EXCHANGE_H
#define STEPC_CORE_EXCHANGE_H

#include "core/Groups.h"
#include "core/Memory.h"
#include "core/Mesh.h"

#include <algorithm>
#include <vector>

namespace stepc {

/// What a pack has in common. The order is that of the calls.
struct PackKey {
  int64_t round = 0;
  /// Those that have more than one rank; none: nothing is called.
  uint64_t axes = 0;
  bool maximum = false;

  bool operator==(const PackKey &other) const {
    return round == other.round && axes == other.axes &&
           maximum == other.maximum;
  }
  bool operator<(const PackKey &other) const {
    if (round != other.round)
      return round < other.round;
    return axes != other.axes ? axes < other.axes : maximum < other.maximum;
  }
};

/// A word that crosses beside the buffers of tensors.
struct PackedWord {
  /// Of the manifest; -1: whether the group takes part.
  int64_t statistic;
  /// The first one where the statistic is of the model.
  size_t group;
  /// Whether it lies among the maxima, which are integers, or the sums, of f64.
  bool maximum;
};

/// Where the words of a round lie, in the order of forEachWord.
struct PackedWords {
  uintptr_t sums = 0;
  int64_t numSums = 0;
  uintptr_t maxima = 0;
  int64_t numMaxima = 0;
};

class Exchange {
public:
  explicit Exchange(const Manifest &manifest);

  /// Before there are tensors.
  void setMesh(Mesh newMesh) { mesh = std::move(newMesh); }
  /// Where packs are to be. Before there are some.
  void setMemory(TakeMemory take) { takeMemory = std::move(take); }
  const Mesh &getMesh() const { return mesh; }
  /// Whether there are other ranks.
  bool isWide() const { return mesh.getWideAxes() != 0; }
  /// Takes memory for the statistics of as many groups.
  void reserveGroups(size_t numGroups);

  // Binding: what is reserved is added, in the same order, and then placed.

  void beginReserve() noexcept;
  /// One buffer more of the pack.
  void reserve(const PackKey &key, int64_t entries);
  /// Takes the memory for all that was reserved.
  void endReserve();
  void add(const PackKey &key, int64_t tensor, int64_t word,
           int64_t entries) noexcept;
  /// Calls set(tensor, word, address) for buffers that are new or have moved.
  template <typename Set>
  void place(Set &&set) noexcept {
    for (Pack &pack : packs)
      for (; pack.numPlaced < pack.slices.size(); ++pack.numPlaced) {
        const Slice &slice = pack.slices[pack.numPlaced];
        set(slice.tensor, slice.word, pack.getAddress(slice.offset));
      }
  }
  /// Frees what packs have lain in before; graphs may still name it.
  void freeReplaced() noexcept { replaced.clear(); }

  // A round, after its segment.

  /// Whether buffers cross behind the segment, or at the end of a step.
  bool hasPacks(int64_t round) const noexcept {
    return std::any_of(packs.begin(), packs.end(), [&](const Pack &pack) {
      return pack.key.round == round && pack.key.axes && pack.count;
    });
  }
  /// Visits the words that cross beside buffers, in their order.
  template <typename Visit>
  void forEachWord(int64_t round, size_t numGroups, Visit &&visit) const;
  /// The most words of all rounds together.
  size_t countWords(size_t numGroups) const {
    return numGroups * (manifest.statistics.size() + 1);
  }
  /// Buffers of tensors that take no part count as none: visits their
  /// addresses, how many words they have, and what each is to be.
  template <typename TakesPart, typename Visit>
  void forEachIdle(int64_t round, TakesPart &&takesPart, Visit &&visit) const {
    for (const Pack &pack : packs)
      if (pack.key.round == round)
        for (const Slice &slice : pack.slices)
          if (!takesPart(slice.tensor))
            visit(pack.getAddress(slice.offset), slice.count,
                  getNeutral(pack.key.maximum));
  }
  template <typename TakesPart>
  void clearIdle(int64_t round, TakesPart &&takesPart) const noexcept {
    forEachIdle(round, takesPart, clear);
  }
  /// The most buffers there can be idle in a round.
  size_t countSlices() const;
  /// Combines packs, statistics of the round, and which groups take part
  /// anywhere. False where the communicator failed; getMessage() has its words.
  bool run(int64_t round, std::vector<Group> &groups) noexcept;
  /// The same on a device: enqueues it on the stream. `counts`: as a round that
  /// is made now, and not by a graph later.
  bool enqueue(int64_t round, const PackedWords &words, void *stream,
               bool counts) noexcept;
  /// Waits for the stream as the communicator does, if it does. False where
  /// that failed.
  bool wait(void *stream) noexcept;
  const char *getMessage() const { return message; }
  /// Whether run(round) has told which groups take part.
  bool tellsActive(int64_t round) const { return round == activeRound; }

  int64_t getNumRounds() const { return numRounds; }
  int64_t getNumCalls() const { return numCalls; }
  int64_t getNumBytes() const { return numBytes; }
  /// Of lists, and of the memory of packs.
  size_t getBytes() const;
  size_t getPackBytes() const;

private:
  /// The buffer of one tensor: entries of 8 bytes.
  struct Slice {
    int64_t tensor;
    /// Of the tensor's row, which holds the address.
    int64_t word;
    int64_t offset;
    int64_t count;
  };

  /// Invariant: outside of a bind there is memory for `count` entries, and the
  /// rows of all slices name their places in it.
  struct Pack {
    PackKey key;
    std::vector<Slice> slices;
    int64_t count = 0;
    int64_t newEntries = 0;
    size_t newSlices = 0;
    size_t numPlaced = 0;
    Memory memory;
    /// Larger memory for what is to be added.
    Memory grown;

    int64_t getCapacity() const { return int64_t(memory.size / 8); }
    uintptr_t getAddress(int64_t offset) const {
      return memory.address + uintptr_t(8 * offset);
    }
  };

  Pack &findPack(const PackKey &key) noexcept;
  static int64_t getNeutral(bool maximum) noexcept;
  static void clear(uintptr_t address, int64_t count, int64_t word) noexcept;
  bool isCombined(size_t statistic, int64_t round) const;
  bool hasStatistic(int64_t round, bool maximum) const;
  void packWords(int64_t round, std::vector<Group> &groups) noexcept;
  void unpackWords(int64_t round, std::vector<Group> &groups) noexcept;
  void addCall(uint64_t axes, StepcReduction reduction, uintptr_t data,
               int64_t count) noexcept;
  void listCalls(int64_t round, const PackedWords &words) noexcept;
  void countCalls() noexcept;
  template <typename Call>
  bool callCommunicator(Call &&call) noexcept;

  const Manifest &manifest;
  Mesh mesh;
  TakeMemory takeMemory;
  /// In the order of their keys.
  std::vector<Pack> packs;
  std::vector<Memory> replaced;
  std::vector<StepcReduceCall> calls;
  /// The first round with functions, which run for groups that take part; -1.
  int64_t activeRound = -1;
  /// Statistics of the round, and which groups take part.
  std::vector<double> sums;
  std::vector<int64_t> maxima;
  char message[1024] = "";
  int64_t numRounds = 0;
  int64_t numCalls = 0;
  int64_t numBytes = 0;
};

/// A value for the model, or one for each group, of each statistic; and behind
/// the statistics of the first round with functions, which groups take part:
/// with what crosses in any case, where there is something.
template <typename Visit>
void Exchange::forEachWord(int64_t round, size_t numGroups,
                           Visit &&visit) const {
  for (size_t s = 0; s < manifest.statistics.size(); ++s) {
    if (!isCombined(s, round))
      continue;
    const Statistic &statistic = manifest.statistics[s];
    size_t count = statistic.scope == Scope::Model
                       ? std::min(numGroups, size_t(1))
                       : numGroups;
    for (size_t g = 0; g < count; ++g)
      visit(PackedWord{int64_t(s), g, statistic.maximum});
  }
  bool inMaxima = !hasStatistic(round, false) && hasStatistic(round, true);
  for (size_t g = 0; g < numGroups && tellsActive(round); ++g)
    visit(PackedWord{-1, g, inMaxima});
}

} // namespace stepc

#endif // STEPC_CORE_EXCHANGE_H
