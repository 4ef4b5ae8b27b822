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

/// Those of one class.
class CodedWindows {
public:
  void reserve(const RowClass &rows, int64_t numWindows, int64_t numSegments);

  /// Cuts a list into windows, of which nothing is decoded yet.
  void cut(const RowList &list, bool inChunks) {
    passes.clear();
    windows.cut(
        list, inChunks, kCodesWindowBytes,
        [&](int64_t row, int64_t first, int64_t last) {
          return measure(list, row, first, last);
        },
        [](int64_t) { return int64_t(1); });
  }
  /// Makes the rows of pieces; what they have of f32 lies from `scratch` on.
  /// `operandsWord`: where the operands of a row begin.
  void place(const RowList &list, int64_t operandsWord, uintptr_t scratch);
  /// Adds the entries of a segment to `words`, window by window.
  void addSegment(const RowList &list, const ClassSegment &segment,
                  uintptr_t scratch, std::vector<int64_t> &words);

  RowList getList(const RowList &list) const { return windows.getList(list); }
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

private:
  static int64_t measure(const RowList &list, int64_t row, int64_t first,
                         int64_t last);
  void addPasses(const RowList &list, const RowWindow &window,
                 uint64_t operands, uintptr_t scratch,
                 std::vector<int64_t> &words);

  RowWindows windows;
  std::vector<CodesPass> passes;
};

} // namespace stepc::cuda

#endif // STEPC_CUDA_CODEDWINDOWS_H
