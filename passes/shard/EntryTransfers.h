//===- EntryTransfers.h - what leads from an entry to a layout -*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SHARD_ENTRYTRANSFERS_H
#define STEPC_PASSES_SHARD_ENTRYTRANSFERS_H

#include "mlir/Support/LLVM.h"

#include <string>
#include <vector>

namespace mlir::step {

/// Over which axes a gradient is brought to where a layout cuts it, or to the
/// rank that steps it. Of a param that is whole over `whole`, and a gradient
/// whose addends are over `partial`:
///
///             over both   over `whole` alone   over `partial` alone
///   scattered     x
///   sliced                        x
///   reduced                                             x
///
/// A gradient that is `cut` already is summed at most. The sum over ranks that
/// keep the same part comes last, so that it is of parts.
struct EntryTransfers {
  using Axes = std::vector<std::string>;
  Axes scattered, sliced, reduced;

  EntryTransfers(ArrayRef<std::string> whole, ArrayRef<std::string> partial,
                 bool cut);
};

} // namespace mlir::step

#endif // STEPC_PASSES_SHARD_ENTRYTRANSFERS_H
