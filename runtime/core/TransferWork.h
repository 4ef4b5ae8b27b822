//===- TransferWork.h - loops over what crosses ranks ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//
// Each is a line of elements, of which every thread has a share; no result
// depends on how many there are.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_TRANSFERWORK_H
#define STEPC_CORE_TRANSFERWORK_H

#include "core/Addends.h"
#include "core/Fault.h"
#include "core/Transfers.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace stepc {

/// What worker `index` of `count` has of a line, in whole cache lines.
inline Piece getShare(int64_t total, int index, int count) {
  int64_t part = ((total + count - 1) / count + 63) & ~int64_t(63);
  int64_t first = std::min(part * index, total);
  return {first, std::min(first + part, total), 0};
}

/// Visits what worker `index` of `count` has of pieces that form a line, in
/// which the next begins at `at`.
template <typename Visit>
void visitShare(const Piece &piece, const Piece &share, int64_t &at,
                Visit &&visit) {
  int64_t length = piece.last - piece.first;
  int64_t from = std::max(share.first - at, int64_t(0));
  int64_t to = std::min(share.last - at, length);
  at += length;
  if (from < to)
    visit(from, to);
}

/// Rounds gradients to what crosses; what does not has no pieces.
struct PackWork {
  const EntryTensor *tensors;
  const TransferBucket *buckets;
  const size_t *list;
  size_t count;
  int64_t total;

  void run(int index, int workers) const {
    Piece share = getShare(total, index, workers);
    int64_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      const EntryTensor &tensor = tensors[list[i]];
      const TransferBucket &bucket = buckets[tensor.bucket];
      const EntryTerms &terms = bucket.terms;
      Storage to = terms.wire;
      double divisor = terms.divideBefore ? terms.divisor : 1.0;
      for (const Piece &piece : tensor.pieces)
        visitShare(piece, share, at, [&](int64_t from, int64_t end) {
          convertElements(
              reinterpret_cast<const void *>(
                  tensor.grad +
                  uintptr_t((piece.first + from) * getByteSize(terms.grad))),
              terms.grad,
              reinterpret_cast<void *>(
                  bucket.send + uintptr_t((piece.at + from) * getByteSize(to))),
              to, end - from, divisor);
        });
    }
  }
};

/// Adds up what the ranks of a stage have sent of this rank's piece.
struct SumWork {
  uintptr_t rows;
  uintptr_t target;
  int64_t own;
  int64_t numRows;
  Storage wire;
  Storage sum;
  double divisor;

  void run(int index, int workers) const {
    Piece share = getShare(own, index, workers);
    if (share.first >= share.last)
      return;
    int64_t stride = own, begin = 0;
    if (STEPC_FAULT("transfer-sum-in-another-order"))
      begin = own * (numRows - 1), stride = -own;
    addElements(
        reinterpret_cast<const void *>(
            rows + uintptr_t((begin + share.first) * getByteSize(wire))),
        stride, numRows, wire,
        reinterpret_cast<void *>(target +
                                 uintptr_t(share.first * getByteSize(sum))),
        sum, share.last - share.first, divisor);
  }
};

struct ConvertWork {
  uintptr_t source;
  Storage from;
  uintptr_t target;
  Storage to;
  int64_t count;

  void run(int index, int workers) const {
    Piece share = getShare(count, index, workers);
    convertElements(reinterpret_cast<const void *>(
                        source + uintptr_t(share.first * getByteSize(from))),
                    from,
                    reinterpret_cast<void *>(
                        target + uintptr_t(share.first * getByteSize(to))),
                    to, share.last - share.first, 1.0);
  }
};

/// Copies elements of parameters into what is gathered, or out of it.
struct CopyWork {
  const EntryTensor *tensors;
  const TransferBucket *buckets;
  const std::vector<GatherSegment> *segments;
  uintptr_t memory;
  bool out;

  void run(int index, int workers) const {
    int64_t total = 0, at = 0;
    for (const GatherSegment &segment : *segments)
      total += segment.piece.last - segment.piece.first;
    Piece share = getShare(total, index, workers);
    for (const GatherSegment &segment : *segments) {
      const EntryTensor &tensor = tensors[segment.tensor];
      int64_t item = getByteSize(buckets[tensor.bucket].terms.param);
      const Piece &piece = segment.piece;
      visitShare(piece, share, at, [&](int64_t from, int64_t to) {
        auto *param = reinterpret_cast<char *>(
            tensor.param + uintptr_t((piece.first + from) * item));
        auto *other = reinterpret_cast<char *>(
            memory + uintptr_t(piece.at + from * item));
        if (!out)
          std::memcpy(other, param, size_t((to - from) * item));
        else if (tensor.ready && !STEPC_FAULT("transfer-not-placed"))
          std::memcpy(param, other, size_t((to - from) * item));
      });
    }
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
