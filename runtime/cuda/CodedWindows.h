//===- CodedWindows.h - states that are codes on a device -------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels take f32. What they take of a state that is kept as codes is decoded
// before, by a launch over all pieces of a window, and encoded behind, by
// another. All windows have their f32 in the same scratch memory, since one is
// done before the next begins; it is small enough to stay in the second-level
// cache with what streams by.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_CODEDWINDOWS_H
#define STEPC_CUDA_CODEDWINDOWS_H

#include "core/Engine.h"
#include "cuda/Module.h"
#include "cuda/RowWindows.h"

namespace stepc::cuda {

/// The f32 of a window. A definition with two states reads and writes as much
/// again of parameters and gradients meanwhile, and a quarter of it of codes:
/// together 36 MiB, of the 40 MB that an A100's second-level cache has, and an
/// H100's 50.
inline constexpr int64_t kCodesWindowBytes = int64_t(16) << 20;

/// The bytes of their scratch memory.
int64_t getCodesBytes(const WorkspaceNeed &need);

/// Entries of one launch, of one format, among those that the device has.
struct CodesPass {
  int64_t first = 0;
  int64_t entries = 0;
  int64_t tiles = 0;
};

/// Where a piece of a state is found: its codes and their scales, and where it
/// is kept its f32.
struct CodesPlace {
  uintptr_t codes;
  uintptr_t scales;
  uintptr_t floats;
};

/// Those of one class.
class CodedWindows {
public:
  /// `numPlaces`: how many states all pieces have.
  void reserve(const RowClass &rows, int64_t numWindows, int64_t numSegments,
               size_t numPlaces);

  /// Cuts a list into windows.
  void cut(const RowList &list, bool inChunks) {
    windows.cut(
        list, inChunks, {INT64_MAX, kCodesWindowBytes},
        [&](int64_t row, int64_t first, int64_t last) {
          return WindowBytes{0, measure(list, row, first, last)};
        },
        [](int64_t) { return int64_t(1); });
    findPlaces(list);
  }
  /// Finds where states lie that no window of a store has.
  void findPlaces(const RowList &list);
  /// Visits the states of a piece with their places, of which another may be
  /// found: `visit(state, place)`.
  template <typename Visit>
  void forEachPlace(const RowList &list, int64_t piece, Visit &&visit) {
    size_t next = size_t(firstPlaces[size_t(piece)]);
    for (const StateCodes &state : getCodes(list, windows.getPiece(piece).row))
      visit(state, places[next++]);
  }
  /// Has the rows of pieces, which are there, find their f32: it lies from
  /// `scratch` on. `operandsWord`: where the operands of a row begin.
  void place(const RowList &list, int64_t operandsWord, uintptr_t scratch);
  /// Nothing is decoded.
  void clearPasses() { passes.clear(); }
  /// Adds the entries of a segment to `words`, window by window.
  void addSegment(const RowList &list, const ClassSegment &segment,
                  uintptr_t scratch, std::vector<int64_t> &words);

  RowList getList(const RowList &list) const { return windows.getList(list); }
  RowWindows &getRowWindows() { return windows; }
  const std::vector<RowWindow> &getWindows() const {
    return windows.getWindows();
  }
  /// Whether something is decoded or encoded in the segment.
  bool any(int64_t segment) const;
  /// What is decoded before a window of the segment, or encoded behind it.
  const CodesPass &getPass(int64_t segment, size_t window, bool encodes,
                           int32_t format) const {
    size_t number = size_t(segment) * getWindows().size() + window;
    number = 2 * number + size_t(encodes);
    return passes[number * size_t(kCodeFormats) + size_t(format - 1)];
  }

  /// The bytes of f32 that elements of a row take.
  static int64_t measure(const RowList &list, int64_t row, int64_t first,
                         int64_t last);

private:
  static StateCodesRange getCodes(const RowList &list, int64_t row) {
    const RowCodes &own = list.rowCodes[row];
    const StateCodes *first = list.codes + own.first;
    return {first, first + own.count};
  }
  template <typename Visit>
  void forEachState(const RowList &list, const RowWindow &window,
                    uintptr_t scratch, Visit &&visit) const;
  void addPasses(const RowList &list, const RowWindow &window,
                 uint64_t operands, uintptr_t scratch,
                 std::vector<int64_t> &words);

  RowWindows windows;
  std::vector<CodesPass> passes;
  /// Piece after piece, and of each its first.
  std::vector<CodesPlace> places;
  std::vector<int64_t> firstPlaces;
};

} // namespace stepc::cuda

#endif // STEPC_CUDA_CODEDWINDOWS_H
