//===- RowLayout.h - the dims of a row ----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ROWLAYOUT_H
#define STEPC_CORE_ROWLAYOUT_H

#include "core/Manifest.h"

#include <cstdint>
#include <vector>

namespace stepc {

struct BoundTensor;

/// The operand in whose memory order kernels take elements: the parameter, but
/// where a state is kept as codes this one, whose blocks lie in row-major order
/// however the parameter lies.
size_t getLeadingOperand(const BoundTensor &tensor, const Variant &variant);

/// The dims of a row, for all operands at once: extents of 1 dropped, the
/// memory order of the one that leads kept (outermost first), and dims joined
/// that every operand keeps without a gap. Rank 0 means contiguous: element i
/// of each operand lies at its address + i, in an order that is the same for
/// all.
class RowLayout {
public:
  /// `strides` has `rank` strides for each of the `operands`.
  void compute(const int64_t *extents, int64_t rank, const int64_t *strides,
               int64_t operands, int64_t leading);

  /// For the tiles space: the dims as they are, or rank 0 where all operands of
  /// the parameter's dims are row-major.
  void computeTiles(const int64_t *extents, int64_t rank,
                    const int64_t *strides, const Variant &variant);

  int64_t getRank() const { return rank; }
  /// The extents, then the strides of each operand, as in a row of the table.
  const std::vector<int64_t> &getWords() const { return words; }

private:
  int64_t rank = 0;
  std::vector<int64_t> words;
  std::vector<int64_t> order;
};

} // namespace stepc

#endif // STEPC_CORE_ROWLAYOUT_H
