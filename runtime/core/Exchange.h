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
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_EXCHANGE_H
#define STEPC_CORE_EXCHANGE_H

#include "core/Groups.h"
#include "core/Mesh.h"
#include "cpu/StateArena.h"

#include <memory>
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

class Exchange {
public:
  explicit Exchange(const Manifest &manifest);

  /// Before there are tensors.
  void setMesh(Mesh newMesh) { mesh = std::move(newMesh); }
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
        set(slice.tensor, slice.word, pack.getEntries(slice.offset));
      }
  }

  // A round, after its segment.

  /// Buffers of tensors that take no part count as none.
  template <typename TakesPart>
  void clearIdle(int64_t round, TakesPart &&takesPart) noexcept {
    for (Pack &pack : packs)
      if (pack.key.round == round)
        for (const Slice &slice : pack.slices)
          if (!takesPart(slice.tensor))
            pack.clear(slice);
  }
  /// Combines packs, statistics of the round, and which groups take part
  /// anywhere. False where the communicator failed; getMessage() has its words.
  bool run(int64_t round, std::vector<Group> &groups) noexcept;
  const char *getMessage() const { return message; }
  /// Whether run(round) has told which groups take part.
  bool tellsActive(int64_t round) const { return round == activeRound; }

  int64_t getNumRounds() const { return numRounds; }
  int64_t getNumCalls() const { return numCalls; }
  int64_t getNumBytes() const { return numBytes; }
  size_t getBytes() const;

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
    std::unique_ptr<StateBlock> memory;
    /// Larger memory for what is to be added.
    std::unique_ptr<StateBlock> grown;

    int64_t getCapacity() const {
      return memory ? int64_t(memory->getSize() / 8) : 0;
    }
    char *getEntries(int64_t offset) const {
      return memory->getData() + 8 * offset;
    }
    void clear(const Slice &slice) noexcept;
  };

  Pack &findPack(const PackKey &key) noexcept;
  template <typename Visit>
  void forEachStatistic(int64_t round, std::vector<Group> &groups,
                        Visit &&visit);
  void packStatistics(int64_t round, std::vector<Group> &groups) noexcept;
  void unpackStatistics(int64_t round, std::vector<Group> &groups) noexcept;
  void addCall(uint64_t axes, StepcReduction reduction, void *data,
               int64_t count) noexcept;
  bool call() noexcept;

  const Manifest &manifest;
  Mesh mesh;
  /// In the order of their keys.
  std::vector<Pack> packs;
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

} // namespace stepc

#endif // STEPC_CORE_EXCHANGE_H
