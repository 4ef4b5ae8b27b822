//===- Overlap.h - whether tensors share memory ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels take the operands of a row as not aliased, and workers run rows at
// the same time: memory that is written may belong to one view only. The
// answer is exact, also for strided views whose ranges interleave, such as two
// columns of one matrix.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_OVERLAP_H
#define STEPC_CORE_OVERLAP_H

#include "core/StateCodes.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace stepc {

/// A view, and whose it is.
struct OwnedView {
  /// In place of an operand: where steps write the tensor's count.
  static constexpr int64_t kMirror = -1;
  /// And below it, of states that are kept as codes, operand k's scales.
  static constexpr int64_t kScales = -2;

  View view;
  bool written = false;
  int64_t tensor = 0;
  int64_t operand = 0;

  static OwnedView ofMirror(const float *mirror, int64_t tensor) {
    View view;
    view.address = reinterpret_cast<uintptr_t>(mirror);
    view.itemSize = sizeof(*mirror);
    return {view, true, tensor, kMirror};
  }
  static OwnedView ofScales(const StateCodes &codes, int64_t tensor) {
    return {codes.getScalesView(), true, tensor, kScales - codes.operand};
  }
  /// Of which operand they are, or none.
  bool isOfScales() const { return operand <= kScales; }
  size_t getScalesOperand() const { return size_t(kScales - operand); }
};

class OverlapChecker {
public:
  /// Takes the memory to check `views` views of at most `rank` dims.
  void reserve(size_t views, int64_t rank);

  void clear();
  /// Adds a view; empty ones are left out. Allocates nothing up to what was
  /// reserved, nor does what follows.
  void add(const OwnedView &view);

  /// The addresses from the first to the one after the last that were added.
  std::pair<uintptr_t, uintptr_t> getRange() const;

  /// Finds two views that share memory which one of them writes; the one of
  /// the lower tensor and operand comes first.
  bool find(const OwnedView *&first, const OwnedView *&second);

  /// Whether two indices of the view name one element.
  bool overlapsItself(const View &view);

  /// Whether two views share a byte.
  bool overlap(const View &a, const View &b);

  size_t getBytes() const;

private:
  struct Range {
    uintptr_t begin;
    uintptr_t end;
    size_t index;
  };

  /// One unknown of a sum: 0 <= x <= bound, with a positive coefficient.
  struct Term {
    int64_t coefficient;
    int64_t bound;
    /// Of the terms after this one.
    int64_t restMaximum;
    int64_t restDivisor;
  };

  void addTerm(int64_t coefficient, int64_t bound);
  void addTerms(const View &view);
  bool canSumTo(__int128 target);
  bool search(size_t at, __int128 target, int64_t &work);
  bool conflict(const Range &range, std::vector<Range> &open,
                const OwnedView *&first, const OwnedView *&second);

  std::vector<OwnedView> views;
  std::vector<Range> ranges;
  std::vector<Range> openReads;
  std::vector<Range> openWrites;
  std::vector<Term> terms;
};

} // namespace stepc

#endif // STEPC_CORE_OVERLAP_H
