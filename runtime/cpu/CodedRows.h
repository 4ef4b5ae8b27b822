//===- CodedRows.h - rows whose states are codes ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels take f32. What they take of a state that is kept as codes is decoded
// before, into memory that stays in a cache, and encoded behind:
//
//   a free part   window by window of a chunk, whose elements alone are
//                 decoded. Each worker has a copy of the row, with other
//                 addresses.
//   a whole part  for all of the tensor, before the first entry of the segment
//                 and behind the last, in the workspace of the row. Who works
//                 on the row writes the addresses into it, and back.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_CODEDROWS_H
#define STEPC_CPU_CODEDROWS_H

#include "core/StateCodes.h"
#include "cpu/Work.h"

namespace stepc::cpu {

/// The states of one row of a part. Cheap to make; there may be none.
class CodedRow {
public:
  CodedRow(const WorkPart &part, int64_t row);

  bool any() const { return begin != end; }

  /// Has entries find what is f32, which lies in `workspace` or is kept; and
  /// the codes again.
  void enter(char *workspace) const;
  void leave() const;
  /// Decodes what the segment needs, and encodes what it has written: worker
  /// `index` of `count` its share.
  void decode(char *workspace, int index, int count) const;
  void encode(char *workspace, int index, int count) const;

  /// Runs the kernel over chunk `chunk` of the row, in a free part.
  void runChunk(StepcKernel kernel, const StepcCall &call, int64_t chunk) const;

private:
  bool isIn(uint64_t operands, const StateCodes &state) const {
    return operands >> state.operand & 1;
  }
  int64_t *getWords() const;
  void runWindow(StepcKernel kernel, const StepcCall &call,
                 int64_t *operands) const;

  const WorkPart &part;
  int64_t row;
  const StateCodes *begin;
  const StateCodes *end;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_CODEDROWS_H
