//===- SharedBlocks.h - blocks of codes that several ranks have ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where ranks cut the rows of a state, the first and the last block of a rank's
// part of each row may go on at its neighbours. Their codes need the largest
// number of the whole block. So what a step writes there stays f32 until its
// end: the ranks tell each other what is largest, of all tensors in one
// exchange (core/Exchange.h), and then each encodes what it has.
//
// Of each row every rank has two words in the exchange: of its first block and
// of its last one. A word names the block, so that no rank needs to know where
// others cut, and only one rank writes it: the maximum over ranks brings it to
// all.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_SHAREDBLOCKS_H
#define STEPC_CORE_SHAREDBLOCKS_H

#include "core/Mesh.h"

#include "numerics/Codes.h"

#include <cstdint>
#include <vector>

namespace stepc {

/// The ranks that share rows, and what this one has of their blocks.
struct SharedBlocks {
  /// 0: nobody cuts a block.
  uint64_t axes = 0;
  int64_t numRanks = 1;
  int64_t rank = 0;
  int64_t rows = 0;
  /// How many elements of a row are of a block that others have a part of, at
  /// its begin and at its end; and which blocks of the whole row these are.
  int64_t head = 0;
  int64_t tail = 0;
  int64_t firstBlock = 0;
  int64_t lastBlock = 0;
  /// Head and tail of each row as f32, and the words of the exchange.
  uintptr_t floats = 0;
  uintptr_t words = 0;

  bool any() const { return axes != 0; }
  int64_t countWords() const { return 2 * rows * numRanks; }
  int64_t countFloats() const { return rows * (head + tail); }

  /// Notes what a step has written of a row's head (`end` 0) or tail (1).
  void keep(int64_t row, int end, const float *values) const noexcept;
  /// Notes of what a step has left out that it is no number: the other ranks
  /// take part, and are told of it behind the step.
  void giveUp() const noexcept;
  /// Forgets what was noted of rows [first, last).
  void forget(int64_t first, int64_t last) const noexcept;

  /// What is known of a block when its parts have been exchanged: an element
  /// that is as large as the largest of others and as negative; nothing where
  /// this rank has noted none of it.
  struct Found {
    bool here = false;
    bool elsewhere = false;
    float top = 0.0F;
  };
  Found find(int64_t row, int end) const noexcept;
  /// The elements that were noted.
  const float *getFloats(int64_t row, int end) const noexcept;
  int64_t getSize(int end) const { return end ? tail : head; }

private:
  int64_t *getWords(int64_t row) const noexcept;
};

/// The axes among these over which equal shares of `extent` units of `inner`
/// elements cut blocks, all of them or none: the same on all ranks.
uint64_t getCuttingAxes(const Mesh &mesh, uint64_t axes, int64_t extent,
                        int64_t inner);

} // namespace stepc

#endif // STEPC_CORE_SHAREDBLOCKS_H
