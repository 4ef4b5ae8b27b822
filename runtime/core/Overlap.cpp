//===- Overlap.cpp - whether tensors share memory -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Overlap.h"

#include "core/Reserve.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

using namespace stepc;

/// What the exact search may cost. Beyond, which no layout from practice
/// reaches, views count as overlapping: refusing is safe.
static constexpr int64_t kMaxWork = 1 << 20;

void OverlapChecker::reserve(size_t numViews, int64_t rank) {
  reserveAtLeast(views, numViews);
  reserveAtLeast(ranges, numViews);
  reserveAtLeast(openReads, numViews);
  reserveAtLeast(openWrites, numViews);
  reserveAtLeast(terms, 2 * size_t(rank) + 2);
}

size_t OverlapChecker::getBytes() const {
  return views.capacity() * sizeof(OwnedView) +
         (ranges.capacity() + openReads.capacity() + openWrites.capacity()) *
             sizeof(Range) +
         terms.capacity() * sizeof(Term);
}

void OverlapChecker::clear() {
  views.clear();
  ranges.clear();
}

void OverlapChecker::add(const OwnedView &view) {
  if (isEmpty(view.view))
    return;
  ByteSpan span = getByteSpan(view.view);
  ranges.push_back({view.view.address + span.low, view.view.address + span.high,
                    views.size()});
  views.push_back(view);
}

std::pair<uintptr_t, uintptr_t> OverlapChecker::getRange() const {
  uintptr_t begin = UINTPTR_MAX, end = 0;
  for (const Range &range : ranges) {
    begin = std::min(begin, range.begin);
    end = std::max(end, range.end);
  }
  return {begin, end};
}

/// A sweep over the ranges by their begin. Those that reach beyond the current
/// begin are open; a range is compared with the open ones only.
bool OverlapChecker::find(const OwnedView *&first, const OwnedView *&second) {
  std::sort(ranges.begin(), ranges.end(), [](const Range &a, const Range &b) {
    return a.begin != b.begin ? a.begin < b.begin : a.index < b.index;
  });
  openReads.clear();
  openWrites.clear();
  for (const Range &range : ranges) {
    bool written = views[range.index].written;
    if (conflict(range, openWrites, first, second) ||
        (written && conflict(range, openReads, first, second)))
      return true;
    (written ? openWrites : openReads).push_back(range);
  }
  return false;
}

/// Closes the ranges in `open` that end before `range` and looks for one among
/// the others that shares memory with it.
bool OverlapChecker::conflict(const Range &range, std::vector<Range> &open,
                              const OwnedView *&first,
                              const OwnedView *&second) {
  open.erase(
      std::remove_if(open.begin(), open.end(),
                     [&](const Range &o) { return o.end <= range.begin; }),
      open.end());
  for (const Range &other : open) {
    const OwnedView &a = views[other.index];
    const OwnedView &b = views[range.index];
    if (!overlap(a.view, b.view))
      continue;
    bool inOrder =
        a.tensor != b.tensor ? a.tensor < b.tensor : a.operand < b.operand;
    first = inOrder ? &a : &b;
    second = inOrder ? &b : &a;
    return true;
  }
  return false;
}

void OverlapChecker::addTerm(int64_t coefficient, int64_t bound) {
  if (bound > 0)
    terms.push_back({coefficient, bound, 0, 0});
}

/// One term for each dim, in bytes, and one for the bytes of an element; one
/// term in all for a dense view.
void OverlapChecker::addTerms(const View &view) {
  ByteSpan span = getByteSpan(view);
  if (isDense(view))
    return addTerm(1, span.high - span.low - 1);
  for (int64_t i = 0; i < view.rank; ++i)
    if (view.extents[i] > 1 && view.strides[i] != 0)
      addTerm(std::llabs(view.strides[i]) * view.itemSize, view.extents[i] - 1);
  addTerm(1, view.itemSize - 1);
}

/// With offsets counted from the lowest byte of each view, a byte is shared
/// when lowA + sum(a) = lowB + sum(b). With y = bound - x for b's unknowns
/// all coefficients are positive: sum(a) + sum(b') = lowB - lowA + max(b).
bool OverlapChecker::overlap(const View &a, const View &b) {
  ByteSpan spanA = getByteSpan(a), spanB = getByteSpan(b);
  uintptr_t lowA = a.address + spanA.low, highA = a.address + spanA.high;
  uintptr_t lowB = b.address + spanB.low, highB = b.address + spanB.high;
  if (lowA >= highB || lowB >= highA)
    return false;
  if (isDense(a) && isDense(b))
    return true;
  terms.clear();
  addTerms(a);
  addTerms(b);
  return canSumTo(static_cast<__int128>(highB) - 1 - lowA);
}

/// Two indices name one element when their difference d is not 0 and
/// sum(d[i] * stride[i]) = 0. Let k be the first dim with d[k] != 0; the sign
/// is free, so d[k] >= 1 and the others run from -bound to bound. Shifting
/// each to start at 0 gives a sum with positive coefficients.
bool OverlapChecker::overlapsItself(const View &view) {
  if (isEmpty(view) || isDense(view))
    return false;
  for (int64_t k = 0; k < view.rank; ++k) {
    int64_t bound = view.extents[k] - 1;
    if (bound == 0)
      continue;
    if (view.strides[k] == 0)
      return true;
    terms.clear();
    addTerm(std::llabs(view.strides[k]), bound - 1);
    __int128 target = -static_cast<__int128>(std::llabs(view.strides[k]));
    for (int64_t j = k + 1; j < view.rank; ++j) {
      int64_t stride = std::llabs(view.strides[j]);
      if (stride == 0 || view.extents[j] == 1)
        continue;
      addTerm(stride, 2 * (view.extents[j] - 1));
      target += static_cast<__int128>(stride) * (view.extents[j] - 1);
    }
    if (canSumTo(target))
      return true;
  }
  return false;
}

/// Whether some values of the unknowns give the sum.
bool OverlapChecker::canSumTo(__int128 target) {
  std::sort(terms.begin(), terms.end(), [](const Term &a, const Term &b) {
    return a.coefficient > b.coefficient;
  });
  int64_t maximum = 0, divisor = 0;
  for (size_t i = terms.size(); i-- > 0;) {
    terms[i].restMaximum = maximum;
    terms[i].restDivisor = divisor;
    maximum += terms[i].coefficient * terms[i].bound;
    divisor = std::gcd(divisor, terms[i].coefficient);
  }
  if (target < 0 || target > maximum || (target != 0 && target % divisor != 0))
    return false;
  int64_t work = 0;
  return search(0, target, work);
}

/// Depth first from the largest coefficient on. What the terms after `at` can
/// give bounds x from both sides, and their common divisor leaves one residue
/// of x: for layouts from practice one or two values are tried at each level.
bool OverlapChecker::search(size_t at, __int128 target, int64_t &work) {
  if (target == 0)
    return true;
  if (at == terms.size())
    return false;
  const Term &term = terms[at];
  __int128 least = 0;
  if (target > term.restMaximum)
    least =
        (target - term.restMaximum + term.coefficient - 1) / term.coefficient;
  __int128 most = std::min<__int128>(target / term.coefficient, term.bound);
  if (term.restDivisor == 0) {
    // The last term has to give the whole rest.
    return target % term.coefficient == 0 && least <= most &&
           target / term.coefficient <= most;
  }
  int64_t step =
      term.restDivisor / std::gcd(term.restDivisor, term.coefficient);
  __int128 lastResidue = std::min<__int128>(most, least + step - 1);
  while (least <= lastResidue &&
         (target - least * term.coefficient) % term.restDivisor != 0) {
    ++least;
    if (++work > kMaxWork)
      return true;
  }
  if (least > lastResidue)
    return false;
  for (__int128 x = least; x <= most; x += step) {
    if (++work > kMaxWork)
      return true;
    if (search(at + 1, target - x * term.coefficient, work))
      return true;
  }
  return false;
}
