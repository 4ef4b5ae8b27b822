//===- TransferWork.h - loops over what crosses ranks ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each is a line of elements, of which every thread has a share; no result
// depends on how many there are.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_TRANSFERWORK_H
#define STEPC_CORE_TRANSFERWORK_H

#include "core/Addends.h"
#include "core/Engine.h"
#include "core/Pieces.h"

#include <algorithm>
#include <cstring>

namespace stepc {

/// Elements [first, last) of a line.
struct Share {
  int64_t first;
  int64_t last;
};

/// What worker `index` of `count` has of a line, in whole cache lines.
inline Share getShare(int64_t total, int index, int count) {
  int64_t part = ((total + count - 1) / count + 63) & ~int64_t(63);
  int64_t first = std::min(part * index, total);
  return {first, std::min(first + part, total)};
}

/// The pieces form a line.
struct ConvertWork {
  const ConvertPiece *pieces;
  size_t size;
  int64_t total;

  void run(int index, int workers) const {
    Share share = getShare(total, index, workers);
    int64_t at = 0;
    for (size_t i = 0; i < size && at < share.last; ++i) {
      const ConvertPiece &piece = pieces[i];
      int64_t from = std::max(share.first - at, int64_t(0));
      int64_t to = std::min(share.last - at, piece.count);
      at += piece.count;
      if (from < to)
        convert(piece, from, to);
    }
  }

private:
  static void convert(const ConvertPiece &piece, int64_t from, int64_t to) {
    int64_t item = getByteSize(piece.to);
    auto *target =
        reinterpret_cast<void *>(piece.target + uintptr_t(from * item));
    if (!piece.source)
      std::memset(target, 0, size_t((to - from) * item));
    else
      convertElements(
          reinterpret_cast<const void *>(
              piece.source + uintptr_t(from * getByteSize(piece.from))),
          piece.from, target, piece.to, to - from, piece.divisor);
  }
};

struct SumWork {
  const RowSum &sum;

  void run(int index, int workers) const {
    Share share = getShare(sum.count, index, workers);
    if (share.first >= share.last)
      return;
    addElements(reinterpret_cast<const void *>(
                    sum.rows + uintptr_t(share.first * getByteSize(sum.wire))),
                sum.stride, sum.numRows, sum.wire,
                reinterpret_cast<void *>(
                    sum.target + uintptr_t(share.first * getByteSize(sum.sum))),
                sum.sum, share.last - share.first, sum.divisor, sum.adds);
  }
};

template <typename Work>
void runWork(Engine &engine, int64_t bytes, Work &work) noexcept {
  engine.runShares(
      bytes,
      [](void *context, int index, int count) {
        static_cast<Work *>(context)->run(index, count);
      },
      &work);
}

} // namespace stepc

#endif // STEPC_CORE_TRANSFERWORK_H
